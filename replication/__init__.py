"""State machines of the leader and its followers: what each may do, decided without I/O, clock or
tasks.

Events enter as method calls with the time as a number; effects leave as values (`effects.py`). So
sockets and etcd drive the same code as the simulation. The logs are reached through
`partition_log.PartitionLog`.
"""
