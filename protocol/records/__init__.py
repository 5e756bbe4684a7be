"""Message formats v0 and v1: layouts, the walk over a set, sets, codecs."""
