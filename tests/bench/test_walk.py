"""What a request walks through: what is counted, and that only the broker is."""

from pathlib import Path
from types import CodeType

import pytest

from horolog.bench.raw_client import RefusedRequest
from horolog.bench.walk import KINDS, FunctionWalk, RequestKind, main, walk

ROOT = Path(__file__).resolve().parents[2]


def code(name: str, file: str) -> CodeType:
    """A function's code; two of one name read the same."""
    made = compile(f"def {name}(): pass", file, "exec").co_consts[0]
    assert isinstance(made, CodeType)
    return made


def test_what_is_counted() -> None:
    read, same, append = code("read", "a.py"), code("read", "b.py"), code("append", "b.py")
    found = FunctionWalk([read, append, append, same, read])
    assert found.functions == [(read, 2), (append, 2), (same, 1)]
    assert found.files == {"a.py", "b.py"}
    assert found.changes_of_file == 2


@pytest.mark.parametrize("name", KINDS)
def test_a_walk_is_of_the_broker_and_of_one_request(name: str) -> None:
    found = walk(KINDS[name], brokers=1)
    paths = [Path(file).resolve() for file in found.files if Path(file).is_absolute()]
    folders = {path.relative_to(ROOT).parts[0] for path in paths if path.is_relative_to(ROOT)}
    assert {"server", "storage"} <= folders
    assert not folders & {"bench", "client", "testing", "tests"}
    assert max(times for _, times in found.functions) < len(found.functions)


@pytest.mark.parametrize("name", ["native-produce", "kafka-produce"])
def test_a_message_crosses_few_functions_in_few_files(name: str) -> None:
    found = walk(KINDS[name])
    assert len(found.functions) <= 60
    assert len(found.files) <= 20


def test_an_answer_to_something_else_is_no_walk() -> None:
    kind = KINDS["native-produce"]
    with pytest.raises(RefusedRequest, match="names offset 7, not 2"):
        walk(RequestKind(kind.encoding, kind.request, lambda answer: 7), brokers=1)


def test_a_table_and_a_list_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "native-list-offsets"]) == 0
    _, row, empty, title, *functions = capsys.readouterr().out.splitlines()
    name, count, *_ = row.split()
    assert (name, empty, title) == ("native-list-offsets", "", name)
    assert len(functions) == int(count)


def test_an_unknown_request_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["produce"])
    assert "unknown: produce; there are native-produce, " in capsys.readouterr().err
