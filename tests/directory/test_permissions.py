"""Who may read what the broker stores: `data.file.mode`, and never more than the umask lets. What
others put in its way is not written to."""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from horolog.config.broker import broker_settings
from horolog.protocol.errors import HorologError, InvalidConfig
from horolog.storage.directory.position_records import StoredPosition
from horolog.storage.files import SystemFiles, replace_file
from horolog.testing.directories import DataDirectory
from horolog.testing.files import FaultyFiles
from horolog.testing.program import Program, serving

Umask = Callable[[int], object]


@pytest.fixture
def umask() -> Iterator[Umask]:
    """Sets the umask, of child processes too; it is as before in the end."""
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


def modes(path: Path) -> dict[str, str]:
    """The permissions of everything in `path` and of itself."""
    found = [path, *sorted(path.rglob("*"))]
    return {str(one.relative_to(path)): f"{stat.S_IMODE(one.stat().st_mode):04o}" for one in found}


def check(path: Path, file_mode: str, directory_mode: str) -> dict[str, str]:
    found = modes(path)
    for name, mode in found.items():
        expected = directory_mode if (path / name).is_dir() else file_mode
        if name == "metadata-log":
            expected = "0700"  # Whatever the setting: salted keys are in it.
        assert mode == expected, name
    return found


def fill(data: DataDirectory) -> None:
    """Make files of every kind; the last write is torn and the stop not clean."""
    directory = data.open()
    directory.cluster_id()
    directory.producer_ids.next()
    directory.create_topic("a", 2, {"segment.bytes": "90", "index.interval.bytes": "0"})
    directory.create_topic("gone", 1, {})
    for ms in range(8):
        data.append("a", ms)
    log = directory.log("a", 0)
    log.flusher.flush()
    data.commit("job", StoredPosition("a", 0, 5, -1, 5, ""))
    log.expiry.trim(3)
    log.expiry.drop_expired()
    directory.delete_topic("gone")
    directory.write_checkpoints()


@pytest.mark.parametrize(
    ("mode", "mask", "file_mode", "directory_mode"),
    [
        (0o600, 0o022, "0600", "0700"),
        (0o600, 0, "0600", "0700"),
        (0o640, 0o022, "0640", "0750"),
        (0o644, 0o022, "0644", "0755"),
        (0o660, 0o007, "0660", "0770"),
        (0o664, 0o077, "0600", "0700"),
        (0o640, 0o022 | 0o040, "0600", "0710"),
    ],
)
def test_everything_that_is_stored(
    tmp_path: Path, umask: Umask, mode: int, mask: int, file_mode: str, directory_mode: str
) -> None:
    umask(mask)
    data = DataDirectory(tmp_path / "data")
    data.files = SystemFiles(mode)
    fill(data)
    last = max((data.path / "a-0").glob("*.log"))
    found = check(data.path, file_mode, directory_mode)
    assert any(name.endswith(".deleted") for name in found)
    data.directory.close()
    last.write_bytes(last.read_bytes() + b"torn")
    (data.path / ".kafka_cleanshutdown").unlink()
    metadata = data.path / "metadata-log" / "__metadata-0" / f"{0:020d}.log"
    metadata.write_bytes(metadata.read_bytes() + b"torn")
    (data.path / "metadata-log" / ".kafka_cleanshutdown").unlink()
    data.open()
    data.close()
    found = check(data.path, file_mode, directory_mode)
    names = {Path(name).name for name in found}
    assert {"topics.json", ".lock", "state", "cluster-id", "producer-ids"} <= names
    assert {".kafka_cleanshutdown", "recovery-point-offset-checkpoint"} <= names
    for suffix in (".log", ".index", ".timeindex", ".appendtime", ".broken", "index-checksums"):
        assert any(name.endswith(suffix) for name in names), suffix


def test_a_broker_and_its_programs(tmp_path: Path, umask: Umask) -> None:
    umask(0o022)
    path = tmp_path / "data"
    with serving(path) as server:
        server.program.ok("produce", "t", stdin="a\nb\n")
        assert server.stop() == 0
    check(path, "0600", "0700")
    with serving(tmp_path / "other", "--set", "data.file.mode=0640") as server:
        server.program.ok("produce", "t", stdin="a\nb\n")
        assert server.stop() == 0
    check(tmp_path / "other", "0640", "0750")
    for folder, modes_there in ((path, ("0600", "0700")), (tmp_path / "other", ("0640", "0750"))):
        log = folder / "t-0" / f"{0:020d}.log"
        log.write_bytes(bytes([0xFF]) + log.read_bytes()[1:])
        Program().ok("repair", folder, "--yes")
        assert any(one.name.endswith(".broken") for one in folder.rglob("*"))
        check(folder, *modes_there)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_root_repairs_stays_the_broker_s(tmp_path: Path) -> None:
    data = DataDirectory(tmp_path / "data")
    fill(data)
    data.close()
    for one in (data.path, *data.path.rglob("*")):
        os.chown(one, 4321, 4322)
    log = min((data.path / "a-0").glob("*.log"))
    log.write_bytes(bytes([0xFF]) + log.read_bytes()[1:])
    Program().ok("repair", data.path, "--yes")
    owners = {(one.stat().st_uid, one.stat().st_gid) for one in data.path.rglob("*")}
    assert owners == {(4321, 4322)}


def test_what_an_older_version_left_open_is_closed(tmp_path: Path, umask: Umask) -> None:
    umask(0o022)
    data = DataDirectory(tmp_path / "data")
    data.files = SystemFiles(0o644)
    fill(data)
    data.close()
    data.files = SystemFiles(0o640)
    data.open()
    found = modes(data.path)
    assert found["."] == "0755"  # It may be somebody else's, and in use for more.
    assert found["a-0"] == found["a-1"] == "0750"
    for name in ("topics.json", "cluster-id", "recovery-point-offset-checkpoint"):
        assert found[name] == "0640"
    data.close()
    # Nothing is given that somebody has taken away.
    (data.path / "a-0").chmod(0o700)
    (data.path / "cluster-id").chmod(0o600)
    data.open()
    found = modes(data.path)
    assert (found["a-0"], found["cluster-id"]) == ("0700", "0600")
    assert data.events.named("permissions_left") == []
    data.close()


def test_what_cannot_be_closed_is_told(tmp_path: Path) -> None:
    data = DataDirectory(tmp_path / "data")
    data.open().create_topic("a", 2, {})
    data.close()
    data.files = files = FaultyFiles(SystemFiles())
    files.fail("restrict", errno.EPERM, times=-1, name="-0")
    files.fail("restrict", errno.EPERM, times=-1, name="-1")
    data.open()
    [told] = data.events.named("permissions_left")
    assert (told["count"], Path(str(told["path"])).name) == (2, "a-0")
    data.close()


@pytest.mark.parametrize("text", ["640", "0640"])
def test_the_setting(text: str) -> None:
    assert broker_settings({"data.file.mode": text}).data_file_mode == "0640"
    assert broker_settings({}).data_file_mode == "0600"


@pytest.mark.parametrize("text", ["", "0400", "0700", "0646", "0622", "1600", "rw-------", "0o640"])
def test_modes_that_are_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r'permissions in octal.*such as "0640"'):
        broker_settings({"data.file.mode": text})


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file of somebody else's, or of another program."""
    made = tmp_path / "victim"
    made.write_text("precious")
    made.chmod(0o644)
    return made


@pytest.mark.parametrize("dangles", [False, True])
def test_a_file_that_is_made_follows_no_link(tmp_path: Path, victim: Path, dangles: bool) -> None:
    target = tmp_path / "nothing" if dangles else victim
    link = tmp_path / "link"
    link.symlink_to(target)
    files = SystemFiles(0o600)
    for make in (partial(files.open, create=True), files.lock):
        with pytest.raises(OSError, match="symbolic link") as raised:
            make(link)
        assert raised.value.errno == errno.ELOOP
    files.restrict(link)
    assert not (tmp_path / "nothing").exists()
    assert victim.read_text() == "precious"
    assert stat.S_IMODE(victim.stat().st_mode) == 0o644


def test_a_folder_that_is_made_is_no_link(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to("other")
    with pytest.raises(OSError, match="symbolic link"):
        SystemFiles().make_directory(tmp_path / "link")


def test_a_file_that_is_replaced_takes_the_place_of_a_link(tmp_path: Path, victim: Path) -> None:
    for name in ("topics.json", "topics.json.tmp"):
        (tmp_path / name).symlink_to(victim)
    replace_file(SystemFiles(), tmp_path / "topics.json", b"new")
    assert (tmp_path / "topics.json").read_bytes() == b"new"
    assert not (tmp_path / "topics.json").is_symlink()
    assert victim.read_text() == "precious"


def test_links_in_the_place_of_everything_that_a_broker_makes(tmp_path: Path, victim: Path) -> None:
    """Whatever comes of it, nothing that they name is touched."""
    reference = DataDirectory(tmp_path / "reference")
    fill(reference)
    reference.close()
    paths = [one.relative_to(reference.path) for one in reference.path.rglob("*")]
    names = {str(path) for path in paths if len(path.parts) == 1} - {"a-0"}
    assert {"topics.json", "metadata-log", "a-1"} <= names
    other = tmp_path / "other"
    other.mkdir()
    for number, name in enumerate(sorted(names | {f"{name}.tmp" for name in names})):
        data = DataDirectory(tmp_path / f"data{number}")
        data.path.mkdir()
        is_folder = (reference.path / name).is_dir()
        (data.path / name).symlink_to(other if is_folder else victim)
        with suppress(HorologError, OSError):
            fill(data)
            data.close()
        assert victim.read_text() == "precious", name
        assert list(other.iterdir()) == [], name


def test_a_segment_does_not_begin_in_the_file_that_a_link_names(
    tmp_path: Path, victim: Path
) -> None:
    data = DataDirectory(tmp_path / "data")
    data.open().create_topic("a", 1, {})
    data.append("a", 1, 2, 3)
    folder = data.path / "a-0"
    for suffix in ("log", "index", "timeindex"):
        (folder / f"{3:020}.{suffix}").symlink_to(victim)
    log = data.directory.log("a", 0)
    with suppress(HorologError, OSError):
        log.appender.roll()
    assert victim.read_text() == "precious"
    data.append("a", 4)
    assert data.times("a") == [1, 2, 3, 4]
    data.close()


def test_the_data_directory_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "data").symlink_to("disk")
    data = DataDirectory(tmp_path / "data")
    data.open().create_topic("a", 1, {})
    data.append("a", 1)
    data.close()
    assert (tmp_path / "disk" / "a-0").is_dir()
