"""Windows of time: the maps that find them, the hour of a day, the memory of indexes."""
