"""One segment: a log file with its indexes and append times."""
