"""Security of commands: options, environment variables and profiles for TLS and login, and the
commands that manage profiles and quotas."""
