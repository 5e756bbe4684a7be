"""`python -m horolog` is the command line program."""

import sys

from .cli.main import main

if __name__ == "__main__":
    sys.exit(main())
