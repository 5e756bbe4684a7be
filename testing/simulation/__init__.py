"""Simulates a cluster in one thread: the real decisions of `replication/`, and models of everything
around them.

One seed determines everything that happens: `Simulation(seed).run()`.
"""
