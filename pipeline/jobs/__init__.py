"""The jobs of the pipeline, one per module. Each needs a broker, and some need Spark.

Spark is imported only when a job that needs it runs.
"""
