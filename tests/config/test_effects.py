"""A setting that nothing reads would be a promise that nothing keeps."""

from pathlib import Path

import pytest

from horolog.config.broker import BROKER_SETTINGS
from horolog.config.setting import Setting
from horolog.config.topic import TOPIC_SETTINGS

ROOT = Path(__file__).resolve().parents[2]

READ_BY_ANOTHER_NAME = {
    "message.timestamp.type": "stamps_append_time",
    "message.format.version": "format_magic",
    "cleanup.policy": "compacts",
}

ONE_VALUE = {
    "preallocate",
    "unclean.leader.election.enable",
    "message.downconversion.enable",
}
"""Settings that may be only what they are, so that there is nothing to read."""


NOT_CLEANED_YET = {
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "max.compaction.lag.ms",
    "delete.retention.ms",
}
"""Settings of a cleaner that is not there yet, as their documentation says."""


@pytest.fixture(scope="module")
def code() -> str:
    folders = ("storage", "server", "cli")
    files = (file for folder in folders for file in (ROOT / folder).rglob("*.py"))
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


@pytest.mark.parametrize(
    "setting",
    [
        pytest.param(setting, id=setting.name)
        for setting in (*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values())
        if setting.name not in ONE_VALUE | NOT_CLEANED_YET
    ],
)
def test_every_setting_is_read_somewhere(setting: Setting, code: str) -> None:
    attribute = READ_BY_ANOTHER_NAME.get(setting.name, setting.attribute)
    assert f".{attribute}" in code


@pytest.mark.parametrize("name", sorted(ONE_VALUE))
def test_what_is_not_read_has_one_value(name: str) -> None:
    setting = BROKER_SETTINGS.get(name) or TOPIC_SETTINGS[name]
    assert len(setting.choices) == 1 or setting.minimum == setting.maximum


@pytest.mark.parametrize("name", sorted(NOT_CLEANED_YET))
def test_what_waits_for_the_cleaner_says_so(name: str) -> None:
    assert "not cleaned yet" in TOPIC_SETTINGS[name].doc
