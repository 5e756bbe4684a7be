"""A cluster in one thread: the real decisions of `replication/`, everything around them simulated.

One seed says everything that happens: `Simulation(seed).run()`.
"""
