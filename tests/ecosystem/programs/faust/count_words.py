"""Counts words in a table until it is told to stop: ADDRESS FOLDER."""

import sys

import faust


def main(address: str, folder: str) -> None:
    application = faust.App(
        "counting",
        broker=f"kafka://{address}",
        datadir=folder,
        store="memory://",
        topic_partitions=1,
        web_enabled=False,
    )
    sent = application.topic("words", value_type=str, value_serializer="raw", partitions=1)
    counts = application.topic("counts", value_serializer="json", partitions=1)
    table = application.Table("seen", default=int, partitions=1)

    @application.agent(sent)
    async def count(words):  # type: ignore[no-untyped-def]
        async for word in words:
            table[word] += 1
            await counts.send(value={"word": word, "count": table[word]})

    sys.argv = ["faust", "worker", "--loglevel", "warn", "--without-web"]
    application.main()


if __name__ == "__main__":
    main(*sys.argv[1:])
