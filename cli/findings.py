"""What `horolog doctor` has to say of one thing."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How serious a finding is. Only a problem makes the exit code 1."""

    GOOD = "good"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """What one check found."""

    check: str
    verdict: Severity
    finding: str
    fix: str = ""
    """What to do; empty when there is nothing to do."""
