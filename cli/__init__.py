"""The `horolog` command."""
