"""A cluster member: carries out what `replication/` decides.

Imported only where `broker.id` is set.
"""
