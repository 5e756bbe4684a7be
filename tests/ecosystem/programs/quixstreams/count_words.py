"""Counts words in a stateful stream, up to so many words: ADDRESS STATE_FOLDER WORDS."""

import sys

from quixstreams import Application, State


def _count(word: str, state: State) -> dict[str, object]:
    count = state.get("count", 0) + 1
    state.set("count", count)
    return {"word": word, "count": count}


def main(address: str, folder: str, words: str) -> None:
    application = Application(
        broker_address=address,
        consumer_group="counting",
        auto_offset_reset="earliest",
        state_dir=folder,
        loglevel="WARNING",
    )
    sent = application.topic("words", key_deserializer="str", value_deserializer="str")
    counts = application.topic("counts", key_serializer="str", value_serializer="json")
    application.dataframe(sent).apply(_count, stateful=True).to_topic(counts)
    application.run(count=int(words), timeout=60)


if __name__ == "__main__":
    main(*sys.argv[1:])
