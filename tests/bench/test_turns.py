"""Figures of two trees in turns: what counts as worse, and wrong usage."""

import subprocess
from pathlib import Path

import pytest

from horolog.bench import turns
from horolog.bench.turns import Compared, compare, main

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("unit", "before", "after", "worse", "is_worse"),
    [
        pytest.param("msg/s", [100, 101, 99], [90, 91, 89], 0.10, True, id="slower"),
        pytest.param("msg/s", [90, 91, 89], [100, 101, 99], -1 / 9, False, id="faster"),
        pytest.param("s", [1.0, 1.0, 1.0], [1.1, 1.1, 1.1], 0.10, True, id="longer"),
        pytest.param("s", [1.0, 1.0, 1.0], [1.02, 1.02, 1.02], 0.02, False, id="within 3 %"),
        pytest.param("msg/s", [100, 60, 140], [90, 50, 130], 0.10, False, id="within spread"),
        pytest.param("ratio", [0.5, 0.5], [0.4, 0.4], 0.20, True, id="a smaller ratio"),
        pytest.param("share", [0.0, 0.0], [0.1, 0.1], 0.0, False, id="of nothing"),
    ],
)
def test_what_counts_as_worse(
    unit: str, before: list[float], after: list[float], worse: float, is_worse: bool
) -> None:
    compared = Compared("x", unit, before, after)
    assert compared.worse == pytest.approx(worse)
    assert compared.is_worse == is_worse
    assert ("WORSE" in compared.row) == is_worse


def test_the_trees_take_turns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ran: list[Path | None] = []

    def figures_of(folder: Path | None, names: object) -> dict[str, tuple[float, str]]:
        ran.append(folder)
        return {"echo_p50": (len(ran), "s")} | ({"new": (1.0, "s")} if folder is None else {})

    monkeypatch.setattr(turns, "figures_of", figures_of)
    assert compare(tmp_path, ["echo_p50"], 3) == [Compared("echo_p50", "s", [1, 4, 5], [2, 3, 6])]
    assert ran == [tmp_path, None, None, tmp_path, tmp_path, None]


def test_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--against", "HEAD", "nothing"]) == 2
    assert "unknown: nothing" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main(["--against", "HEAD", "echo_p50", "--turns", "1"])
    assert ended.value.code == 2
    assert "it must be at least 2" in capsys.readouterr().err


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="an unpacked archive has no commits")
def test_a_commit_is_checked_out_until_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "FORM", "reference")  # it need not be compiled
    with turns.checked_out("HEAD") as folder:
        tree = folder / "horolog"
        assert (tree / "bench" / "__main__.py").exists()
    assert not tree.exists()
    listed = subprocess.run(
        ["git", "worktree", "list"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert str(tree) not in listed.stdout
