"""Memory that requests took is kept for the next ones."""

import os
import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource
from horolog.memory import keep_freed_memory

def faults():
    def turn():
        frames = [bytes([1]) * 70_000 for _ in range(8)]
        return len(b"".join(frames))
    for _ in range(20):
        turn()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(100):
        turn()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

before = faults()
keep_freed_memory()
# The system may take pages away meanwhile.
print(before, min(faults() for _ in range(3)))
"""


def page_faults(**environment: str) -> tuple[int, int]:
    """Of a hundred turns, before and after the C library has been told."""
    inherited = {name: text for name, text in os.environ.items() if "MALLOC" not in name}
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=inherited | environment,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    before, after = map(int, told.stdout.split())
    return before, after


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other libraries are left alone")
def test_turn_after_turn_takes_the_same_memory() -> None:
    before, after = page_faults()
    assert after < 100 < before


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other libraries are left alone")
def test_what_an_operator_has_chosen_stays() -> None:
    before, after = page_faults(MALLOC_TRIM_THRESHOLD_="131072", MALLOC_MMAP_THRESHOLD_="131072")
    assert before > 1000
    assert after > 1000


GARBAGE = """
import gc, weakref
from horolog.memory import collect_garbage, settle

class Cycle:
    def __init__(self):
        self.itself = self

def is_left():
    cycle = Cycle()
    found = weakref.ref(cycle)
    gc.collect(1)  # from here on only a look through everything finds it
    del cycle
    collect_garbage()
    return found() is not None

print(is_left())
settle()
print(is_left())
frozen = gc.get_freeze_count()
few = [[] for _ in range(10_000)]
collect_garbage()
print(gc.get_freeze_count() - frozen > len(few))
many = [[] for _ in range(60_000)]
collect_garbage()
print(gc.get_freeze_count() - frozen > len(many))
looks = []
gc.callbacks.append(lambda phase, info: looks.append(info["generation"]))
more = [[] for _ in range(1_000_000)]
print(2 in looks)
"""


def test_garbage_is_collected_when_there_is_time() -> None:
    """Of a process that has settled; others are left to Python. What it has many of is not looked
    through again, and nothing but that call looks through everything."""
    told = subprocess.run(
        [sys.executable, "-c", GARBAGE], stdout=subprocess.PIPE, check=True, text=True
    )
    assert told.stdout.split() == ["True", "False", "False", "True", "False"]


THREADS = """
import gc, sys, threading
from horolog.memory import collect_garbage, settle

def build_tuples():
    try:
        while not ended.is_set():
            tuple(str(number) for number in range(3))
    except SystemError as error:
        print(error)

settle()
sys.setswitchinterval(1e-6)
ended = threading.Event()
thread = threading.Thread(target=build_tuples)
thread.start()
for _ in range(3000):
    gc.collect(1)  # so that there can be garbage of the oldest generation
    collect_garbage()
ended.set()
thread.join()
"""


def test_a_collection_leaves_the_tuples_of_other_threads_alone() -> None:
    """CPython refuses to shrink a tuple that has a second reference, and `tuple(generator)` shrinks
    its own."""
    told = subprocess.run(
        [sys.executable, "-c", THREADS], stdout=subprocess.PIPE, check=True, text=True
    )
    assert told.stdout == ""
