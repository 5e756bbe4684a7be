"""`python -m horolog` is the program `horolog`."""

from .cli.main import main

if __name__ == "__main__":
    main()
