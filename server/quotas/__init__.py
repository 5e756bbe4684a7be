"""Client quotas: rules, measured usage and throttling."""
