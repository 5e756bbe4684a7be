"""The commands of `horolog explain`."""
