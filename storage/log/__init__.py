"""One partition's log: segments, appends, syncs, rolling, retention, recovery."""
