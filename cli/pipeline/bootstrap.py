"""`horolog pipeline bootstrap`: loads files or a database table into a topic, with their times."""

from collections.abc import Sequence
from typing import Annotated

import typer

from ...pipeline.jobs.bootstrap import (
    FORMATS,
    DataFacts,
    FindingLevel,
    Mapped,
    PreflightFinding,
    facts_of,
    load,
    messages,
    preflight,
    read_input,
    topic_ends,
)
from ..errors import CommandFailed, WrongUsage, note
from ..options import DEFAULT_SERVER, Json, Server, name_values
from ..output import emit, emit_object, json_time, shown_size, shown_time
from .shown import refusals
from .spark import DEFAULT_MASTER, Conf, Master, seen_by_spark, spark_session

ValueColumn = Annotated[
    str | None,
    typer.Option(
        metavar="SQL",
        help="Expression for the value; by default the column value, or the whole row as JSON.",
    ),
]
KeyColumn = Annotated[
    str | None,
    typer.Option(metavar="SQL", help="Expression for the key; by default the column key, or none."),
]
TimeColumn = Annotated[
    str | None,
    typer.Option(
        metavar="SQL",
        help="Expression for the time, a timestamp or epoch milliseconds; by default the "
        "column timestamp.",
    ),
]
JobId = Annotated[
    str | None,
    typer.Option(
        metavar="ID",
        help="Id of this load. A second run with the same id within a day appends nothing twice.",
    ),
]


def bootstrap(
    topic: Annotated[str, typer.Option(metavar="TOPIC", help="Topic for the rows.")],
    path: Annotated[
        str | None,
        typer.Argument(metavar="[PATH]", help="Files or folders to read; none with jdbc."),
    ] = None,
    kind: Annotated[
        str, typer.Option("--format", help="parquet, csv (with a header), json, orc or jdbc.")
    ] = "parquet",
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="An option of Spark for --format."),
    ] = None,
    value: ValueColumn = None,
    key: KeyColumn = None,
    timestamp: TimeColumn = None,
    job_id: JobId = None,
    plan_only: Annotated[
        bool, typer.Option("--plan", help="Check the rows and the topic, and exit.")
    ] = False,
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """Append rows to a topic, each with its own time.

    Keys choose partitions as in Kafka's clients, and each partition gets its rows in the order of
    their times. If the topic would refuse rows, or delete them again, nothing is appended: exit
    code 1, with the command that changes that. A second run appends all rows again, unless it has
    the same --job-id.
    """
    from ..security.settings import for_workers

    server = for_workers(server)
    if kind not in FORMATS:
        raise WrongUsage(f"--format {kind}: it is one of {', '.join(FORMATS)}")
    if (path is None) != (kind == "jdbc"):
        raise WrongUsage("--format jdbc takes no PATH, and every other format takes one")
    options = name_values(option or (), "--option")
    with spark_session(master, conf) as spark, refusals():
        there = None if path is None else seen_by_spark(path, master)
        rows = read_input(spark, there, kind, options)
        # The topic may not exist; `preflight` needs the facts to report that with advice.
        facts = facts_of(messages(rows, Mapped(value, key, timestamp), 1))
        _show_facts(facts, topic, as_json)
        _judge(preflight(server, topic, facts))
        before = topic_ends(server, topic)
        partitions = len(before.offsets)
        if plan_only or facts.rows == 0:
            return
        mapped = messages(rows, Mapped(value, key, timestamp), partitions)
        load(mapped, server, topic, partitions, job_id)
    appended = topic_ends(server, topic).since(before)
    _show_done(facts, appended, topic, as_json)
    _check(facts, appended, topic, again=job_id is not None)


def _judge(findings: Sequence[PreflightFinding]) -> None:
    for one in findings:
        fix = f" To change that: {one.fix}" if one.fix else ""
        note(f"{one.level.value}: {one.text}.{fix}")
    if any(one.level is FindingLevel.REFUSED for one in findings):
        raise CommandFailed("nothing was appended")


def _show_facts(facts: DataFacts, topic: str, as_json: bool) -> None:
    if as_json:
        emit_object(
            plan=topic,
            rows=facts.rows,
            first_ms=json_time(facts.first_ms),
            last_ms=json_time(facts.last_ms),
            without_time=facts.without_time,
            bytes=facts.total_bytes,
        )
        return
    emit(
        [
            f"to {topic}: {facts.rows} rows, {shown_size(facts.total_bytes)} of keys and values, "
            f"times from {shown_time(facts.first_ms)} to {shown_time(facts.last_ms)}"
        ]
    )


def _show_done(facts: DataFacts, appended: int, topic: str, as_json: bool) -> None:
    if as_json:
        emit_object({"done": "bootstrap", "rows": facts.rows, "appended": appended})
    else:
        emit([f"{appended} messages were appended to {topic}"])


def _check(facts: DataFacts, appended: int, topic: str, *, again: bool) -> None:
    missing = facts.rows - appended
    if missing > 0 and again:
        note(f"{missing} rows were there already, from an earlier run of this job")
    elif missing > 0:
        raise CommandFailed(f"{missing} rows were not appended")
    elif missing < 0:
        raise CommandFailed(
            f"{-missing} messages more than there are rows: another producer appends to {topic}, "
            "or rows are there twice"
        )
