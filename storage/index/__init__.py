"""The files beside a segment's log: offset index, time index, append times, checksums."""
