"""The pages of docs/ that are generated say what the code says."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from horolog.cli.errors_reference import lines as error_lines
from horolog.cli.reference import lines as command_lines
from horolog.config.broker import NAMES
from horolog.protocol.errors import ERRORS
from horolog.server.reference import main as write_page
from horolog.server.reference import metric_lines, right_lines, setting_lines

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize(
    ("page", "lines"),
    [
        pytest.param("settings.md", setting_lines, id="settings"),
        pytest.param("errors.md", error_lines, id="errors"),
        pytest.param("metrics.md", metric_lines, id="metrics"),
        pytest.param("cli.md", command_lines, id="cli"),
        pytest.param("security/rights.md", right_lines, id="rights"),
    ],
)
def test_the_page_is_current(page: str, lines: Callable[[], Iterator[str]]) -> None:
    written = (DOCS / page).read_text(encoding="utf-8")
    assert written == "\n".join(lines()) + "\n", f"docs/{page} is out of date: run `make docs`"


def test_every_name_and_code_is_on_its_page() -> None:
    settings, errors = "\n".join(setting_lines()), "\n".join(error_lines())
    assert [name for name in NAMES if f"`{name}`" not in settings] == []
    assert [code for code in ERRORS if f"| {code} |" not in errors] == []


def test_a_page_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert write_page(["errors"]) == 2
    assert capsys.readouterr() == (
        "",
        "usage: python -m horolog.server.reference settings|metrics|rights\n",
    )
    assert write_page(["metrics"]) == 0
    assert capsys.readouterr().out == (DOCS / "metrics.md").read_text(encoding="utf-8")
