"""How commands are let in by a broker: options, variables, profiles, and what `doctor` checks."""
