"""A broker that is one of several: what carries out what `replication/` decides.

Imported only where `broker.id` is set.
"""
