"""Tries the Horolog that is installed for the Python that runs this: `python -I installed.py`.

It is compiled, it is no checkout, and a broker takes a message and gives it back. `make wheel`,
cibuildwheel and the tests of the wheel do this.
"""

import os
import sys
import tempfile
from pathlib import Path

import horolog
from horolog.testing.program import WITH_HTTP, Program, serving

for name in ("PYTHONPATH", "HOROLOG_KERNEL"):
    os.environ.pop(name, None)


def main() -> None:
    place = Path(horolog.__file__).resolve()
    if not place.is_relative_to(Path(sys.prefix).resolve()):
        sys.exit(f"{place} is not in {sys.prefix}: another Horolog was found")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # `python -m` looks here first
        version = Program().ok("--version").out.strip()
        expected = f"horolog {horolog.__version__} (compiled)"
        if version != expected:
            sys.exit(f"horolog --version says {version!r}, not {expected!r}")
        with serving(Path(folder) / "data", *WITH_HTTP) as server:
            server.program.ok("topic", "create", "words")
            server.program.ok("produce", "words", "--json", stdin='{"value": "there and back"}\n')
            (read,) = server.program.ok("consume", "words", "--json").objects
            if read["value"] != "there and back":
                sys.exit(f"consume gives {read}")
            if server.stop() != 0:
                sys.exit(server.log.read_text())
    sys.stdout.write(f"{version} in {sys.prefix}: a message went there and back\n")


main()
