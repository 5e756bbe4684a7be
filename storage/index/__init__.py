"""What is kept beside a segment: offset index, time index, append times, checksums."""
