"""Message formats v0 and v1: layouts, the scan kernel, sets, codecs."""
