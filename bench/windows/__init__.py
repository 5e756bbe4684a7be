"""Measures windows of time: the time maps, the hour of a day, and the memory of indexes."""
