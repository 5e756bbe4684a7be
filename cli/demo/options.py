"""The options of the demo beside those of every broker."""

from typing import Final

from ..broker_options import BrokerOption

HISTORY: Final = BrokerOption(
    "--history",
    "PATH",
    "take the history from this folder: its commits when it is a git repository with more than "
    "1,000 of them, else its files",
)
