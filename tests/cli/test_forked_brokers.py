"""A broker that the tests fork is as one that starts by itself."""

from pathlib import Path

import pytest

from horolog.testing.program import serving

own = pytest.mark.parametrize("own_process", [False, True], ids=["forked", "own"])


@own
def test_it_has_the_folder_the_settings_and_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_process: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    env = {"HOROLOG_RETENTION_MS": "2000001"}
    with serving(Path("data"), env=env, own_process=own_process) as server:
        assert server.program.ok("topic", "create", "a")
        (topic,) = server.program.ok("topic", "describe", "a", "--json").objects
        assert {one["name"]: one["value"] for one in topic["settings"]}["retention.ms"] == "2000001"
        assert server.stop() == 0
    assert (tmp_path / "data").is_dir()


@own
def test_what_it_says_of_a_wrong_start_is_in_its_log(tmp_path: Path, own_process: bool) -> None:
    with (
        pytest.raises(RuntimeError, match="nothing\\.like\\.this"),
        serving(tmp_path / "data", "--set", "nothing.like.this=1", own_process=own_process),
    ):
        pass
