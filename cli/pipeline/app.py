"""The commands of `horolog pipeline`, put together. Spark is imported only by those that run it."""

from ..options import group
from .bootstrap import bootstrap
from .failover import failover
from .lag import lag
from .latency import latency
from .machine import doctor, env, package
from .replay import replay
from .watch import watch

pipeline = group("Jobs between topics, files and clusters.")
pipeline.command()(replay)
pipeline.command()(latency)
pipeline.command()(bootstrap)
pipeline.command()(failover)
pipeline.command()(lag)
pipeline.command()(watch)
pipeline.command()(doctor)
pipeline.command()(env)
pipeline.command()(package)
