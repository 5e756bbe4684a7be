"""The commands of `horolog cluster`."""
