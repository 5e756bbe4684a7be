"""Test kit: movable clock, faulty files, in-process broker."""
