"""Administration of topics, settings, offsets, committed positions, ACLs, quotas and users."""
