"""`python -m horolog.bench.windows`: see `shapes`."""

from .shapes import main

main()
