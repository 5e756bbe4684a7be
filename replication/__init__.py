"""Leader and followers: what each may do, decided without I/O, clock or tasks.

Events go in as calls with the time as a number, effects come out as values (`effects.py`), so that
sockets and etcd drive the very same code as the simulation does. The logs below are reached
through `partition_log.PartitionLog`.
"""
