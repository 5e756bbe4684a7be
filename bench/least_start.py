"""A process that imports the libraries of a broker and then takes connections: the cost of a start
without the broker's own modules.

It runs as a file, with the names of the modules as arguments, so that it imports nothing of this
package.
"""

import gc
import socket
import subprocess
import sys
import time
from importlib import import_module
from typing import Final

_LISTED: Final = """
import sys
import {package}.cli.serve, {package}.server.main, uvloop
for name, module in sys.modules.items():
    others = name.partition(".")[0] not in ("{package}", "__main__")
    if others and getattr(module, "__spec__", None):
        print(name)
"""


def libraries() -> list[str]:
    """Return the modules of libraries, and of Python's own library, in the order of their
    imports."""
    listed = _LISTED.format(package=__name__.partition(".")[0])
    run = subprocess.run([sys.executable, "-c", listed], capture_output=True, text=True, check=True)
    return run.stdout.split()


def start_seconds(names: list[str]) -> float:
    """Return the seconds from the start of such a process until it takes connections."""
    began = time.perf_counter()
    command = [sys.executable, __file__, *names]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        if started.stdout.readline() != "listening\n":
            raise RuntimeError("it does not listen")
        taken = time.perf_counter() - began
        started.kill()
    return taken


def main(names: list[str]) -> None:
    gc.disable()  # as in the broker
    for name in names:
        import_module(name)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print("listening", flush=True)
        listener.accept()


if __name__ == "__main__":
    main(sys.argv[1:])
