"""Message formats v0, v1 and v2: layouts, the walk over a record set, codecs."""
