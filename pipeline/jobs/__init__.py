"""The jobs of the pipeline, one a module: functions that need a broker, and where it says so Spark.

Nothing here imports Spark before a job that needs it runs.
"""
