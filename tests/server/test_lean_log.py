"""The log of a broker's own process does without what structlog would load for it."""

import subprocess
import sys

LEAN = """
import sys
from horolog.server.events import load_lean_log
load_lean_log()
load_lean_log()
import structlog.dev
print("rich" in sys.modules, structlog.dev.rich)
import rich.console
finders = [type(one).__module__ for one in sys.meta_path]
print("rich" in sys.modules, finders.count("horolog.server.events"))
"""

LEFT_ALONE = """
import horolog.server.main, structlog.dev
print(structlog.dev.rich.__name__)
"""


def printed(code: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_structlog_finds_no_rich_and_everybody_else_does() -> None:
    assert printed(LEAN) == ["False None", "True 1"]


def test_a_program_that_has_a_broker_in_it_keeps_its_own_log_as_it_was() -> None:
    assert printed(LEFT_ALONE) == ["rich"]
