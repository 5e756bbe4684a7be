"""`horolog profile`, and which of options, environment and profile wins."""

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.cli.app import whole_program
from horolog.cli.errors import WrongUsage
from horolog.cli.security import profiles
from horolog.cli.security.options import OPTIONS
from horolog.cli.security.profiles import Layer
from horolog.cli.security.settings import Layers
from horolog.client.cluster.servers import parse_servers
from horolog.client.security.security import SecretFile
from horolog.config.broker import OTHER_VARIABLES
from horolog.testing.program import CommandResult

Run = Callable[..., CommandResult]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the profiles are."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "horolog" / "config.toml"


def test_add_use_list_remove(run: Run, home: Path, tmp_path: Path) -> None:
    assert run("profile", "list").out == "no profiles\n"
    added = run(
        *("profile", "add", "prod", "--server", "tls://a:7070", "--user", "alice"),
        *("--password-file", tmp_path / "password", "--ca", "~/ca.pem"),
    )
    assert added.out == "profile prod is in use: tls://a:7070\n"
    run("profile", "add", "local")
    one, two = run("profile", "list", "--json").objects
    assert one == {"profile": "local", "in_use": True, "server": "127.0.0.1:7070"}
    assert (two["profile"], two["in_use"], two["user"]) == ("prod", False, "alice")
    assert two["ca"] == str(Path("~/ca.pem").expanduser())
    assert run("profile", "use", "prod").out == "profile prod is in use: tls://a:7070\n"
    assert "prod*" in run("profile", "list").out
    assert stat.S_IMODE(home.stat().st_mode) == 0o600
    assert stat.S_IMODE(home.parent.stat().st_mode) == 0o700
    run("profile", "remove", "prod")
    assert [one["profile"] for one in run("profile", "list", "--json").objects] == ["local"]
    assert [path.name for path in home.parent.iterdir()] == ["config.toml"]
    run("profile", "use", "prod", code=2)
    run("profile", "remove", "prod", code=2)


def test_what_cannot_be_a_profile(run: Run, home: Path) -> None:
    assert "cannot be the name" in run("profile", "add", "a b", code=2).err
    assert "'x' is not HOST:PORT" in run("profile", "add", "a", "--server", "x", code=2).err
    told = run("profile", "add", "a", "--user", "alice", code=2).err
    assert "password_command" in told
    wrong = run(
        *("profile", "add", "a", "--user", "a", "--password-file", "f", "--mechanism", "PLAIN"),
        code=2,
    )
    assert "everybody on the way can read it" in wrong.err
    assert not home.exists()


LOGIN = "tls://alice:correct-horse@a:7070"


def test_a_login_in_an_address_is_not_shown(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = [run("topic", "list", "--server", LOGIN, code=2).err]
    told.append(run("profile", "add", "a", "--server", LOGIN, code=2).err)
    with monkeypatch.context() as patched:
        patched.setenv("HOROLOG_SERVER", LOGIN)
        told.append(run("topic", "list", code=2).err)
    home.parent.mkdir(parents=True)
    home.write_text(f'profile = "prod"\n[profiles.prod]\nserver = "{LOGIN}"\n')
    home.chmod(0o600)
    told += [run(*command, code=2).err for command in (("topic", "list"), ("profile", "list"))]
    for err in told:
        assert "'tls://...@a:7070' has a login before the @" in err
        assert "horse" not in err
    assert f"{home}: profiles.prod.server" in told[-1]


def test_a_name_of_a_file_that_is_not_utf_8(run: Run, home: Path) -> None:
    assert "is not UTF-8" in run("profile", "add", "a", "--ca", "ca-\udcff", code=2).err
    assert not home.exists()


def test_there_is_no_option_for_a_password(run: Run) -> None:
    for command in (("consume", "t"), ("profile", "add", "a")):
        assert "No such option" in run(*command, "--password", "x", code=2).err


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("[", "is not TOML"),
        ("profile = 1", "profile is a text"),
        ("profiles = 1", "profiles is tables"),
        ('profile = "a"', "there is no such profile"),
        ("[profiles]\na = 1", "profiles.a is not a table"),
        ("[profiles.a]\nserver = 1", "profiles.a.server is not a text"),
        ('[profiles.a]\npassword_command = "cat"', "is not the words of a command"),
        ("[profiles.a]\npassword_command = []", "is not the words of a command"),
        ("[profiles.a]\npassword_command = [1]", "is not the words of a command"),
        ('[profiles.a]\npassword = "x"', "A password itself cannot be there"),
        ('[profiles."a b"]', "cannot be the name"),
    ],
)
def test_files_that_cannot_be_used(run: Run, home: Path, text: str, wrong: str) -> None:
    home.parent.mkdir(parents=True)
    home.write_text(text)
    told = run("topic", "list", code=2)
    assert wrong in told.err
    assert told.err.count("\n") == 1


def test_a_file_that_others_can_write_is_not_believed(run: Run, home: Path) -> None:
    run("profile", "add", "a")
    home.chmod(0o620)
    assert "can be written by others" in run("topic", "list", code=2).err


def test_a_profile_is_for_its_own_server(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its password is not sent to another one, unless it is asked for by name."""
    missing = str(tmp_path / "missing")
    run("profile", "add", "a", "--server", "127.0.0.1:1", "--user", "u", "--password-file", missing)
    assert "127.0.0.1:1" in run("topic", "list", code=1).err
    assert "127.0.0.1:2" in run("topic", "list", "--server", "127.0.0.1:2", code=1).err
    monkeypatch.setenv("HOROLOG_SERVER", "127.0.0.1:3")
    assert "127.0.0.1:3" in run("topic", "list", code=1).err
    assert "no profile 'b'" in run("topic", "list", "--profile", "b", code=2).err
    monkeypatch.delenv("HOROLOG_SERVER")
    monkeypatch.setenv("HOROLOG_PROFILE", "b")
    assert "no profile 'b'" in run("topic", "list", code=2).err


TLS = parse_servers("tls://a:1")
PLAIN = parse_servers("a:1")


def test_an_option_wins_over_a_variable_and_that_over_a_profile() -> None:
    layers = Layers(
        {"ca": "option"},
        {"ca": "variable", "user": "variable", "password_file": "variable"},
        {"user": "profile", "password_file": "profile", "mechanism": "PLAIN"},
    )
    found = layers.security(TLS)
    assert found is not None
    assert (found.ca, found.user, found.password) == ("option", "variable", SecretFile("variable"))
    assert found.mechanism == "SCRAM-SHA-512"  # what the profile says is for its own user


def test_a_password_of_another_user_is_not_taken() -> None:
    layers = Layers({"user": "bob"}, {}, {"user": "alice", "password_file": "of-alice"})
    with pytest.raises(WrongUsage, match="the user bob has no password"):
        layers.security(TLS)


def test_an_option_can_give_the_password_of_the_profile_s_user() -> None:
    layers = Layers({"password_file": "new"}, {}, {"user": "alice", "password_file": "old"})
    found = layers.security(TLS)
    assert found is not None
    assert (found.user, found.password) == ("alice", SecretFile("new"))


def test_what_is_for_tls_is_left_out_where_it_was_not_asked_for() -> None:
    assert (
        Layers({}, {"ca": "ca", "client_cert": "c", "client_key": "k"}, {}).security(PLAIN) is None
    )
    with pytest.raises(WrongUsage, match="ca is for TLS"):
        Layers({"ca": "ca"}, {}, {}).security(PLAIN)


def test_variables_of_clients_are_no_settings_of_the_broker() -> None:
    assert {one.variable.removeprefix("HOROLOG_") for one in OPTIONS} <= OTHER_VARIABLES


TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(profiles.TEXTS, TEXTS),
        "server": TEXTS.filter(lambda text: "@" not in text),
        **{name: st.lists(TEXTS, min_size=1, max_size=3).map(tuple) for name in profiles.COMMANDS},
    },
)


@given(st.dictionaries(st.from_regex(r"\A[A-Za-z0-9_-]{1,10}\Z"), SETTINGS, max_size=4))
def test_what_is_written_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, found: dict[str, Layer]
) -> None:
    path = tmp_path_factory.mktemp("profiles") / "config.toml"
    wanted = profiles.Profiles(next(iter(found), None), found)
    profiles.save(path, wanted)
    assert profiles.load(path) == wanted


@pytest.mark.parametrize("command", [("consume", "t"), ("topic", "list"), ("pipeline", "lag")])
def test_every_command_with_a_server_has_the_options(run: Run, command: tuple[str, ...]) -> None:
    text = run(*command, "--help").out
    for option in OPTIONS:
        assert f"  {option.flag} " in text
        assert option.variable in text.replace("\n" + " " * 34, " ")


def test_help_of_the_json_of_profiles_is_json(run: Run, home: Path) -> None:
    run("profile", "add", "a", "--password-command", "secret-tool lookup 'my key'", "--user", "u")
    (one,) = run("profile", "list", "--json").objects
    assert one["password_command"] == ["secret-tool", "lookup", "my key"]
    assert json.loads(json.dumps(one)) == one


def test_options_of_the_login_are_those_of_every_command(run: Run) -> None:
    """One whose name a command needs for itself is there as --login-NAME, with the same variable.
    The file of a new password is called so by what others rely on."""
    hidden: set[tuple[Any, ...]] = set()
    pending: list[tuple[tuple[str, ...], Any]] = [((), whole_program())]
    while pending:
        name, command = pending.pop()
        pending += [((*name, key), one) for key, one in getattr(command, "commands", {}).items()]
        own = [param for param in command.params if param.name != "server"]
        if len(own) < len(command.params):
            flags = {flag for param in own for flag in param.opts}
            hidden |= {(*name, one) for one in OPTIONS if one.flag in flags}
    assert {(*name, option.flag) for *name, option in hidden} == {
        ("user", "add", "--password-file"),
        ("user", "password", "--password-file"),
    }
    for *words, option in hidden:
        text = run(*words, "--help").out
        assert f"  --login-{option.flag.removeprefix('--')} " in text
        assert option.variable in text
