"""A task of Celery that writes a line to a file; run as a program, it sends some: NUMBERS..."""

import os
import sys
from pathlib import Path

from celery import Celery

application = Celery("tasks", broker=f"confluentkafka://{os.environ['ADDRESS']}")


def _note(number: int) -> None:
    with Path(os.environ["NOTES"]).open("a") as notes:
        notes.write(f"{number}\n")


note = application.task(_note, name="note")


if __name__ == "__main__":
    for number in sys.argv[1:]:
        note.delay(int(number))
