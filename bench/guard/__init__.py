"""What security and quotas cost."""
