"""Consumer groups: members that share out partitions among themselves, and who is in charge."""
