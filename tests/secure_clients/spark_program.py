"""A program of Spark's that uses a guarded cluster, and shows all that Spark shows of it.

`python spark_program.py FOLDER`: `settings.json` in it has the options and the topics; what it
writes is there, and on its standard output.
"""

import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from horolog.pipeline import publish_progress, session

FOLDER = Path(sys.argv[1])
LOGGING = """\
rootLogger.level = warn
logger.spark.name = org.apache.spark
logger.spark.level = info
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c: %m%n%ex
"""
SETTINGS = json.loads((FOLDER / "settings.json").read_text())


def say(*what: object) -> None:
    """On standard output."""
    sys.stdout.write(f"{' '.join(map(str, what))}\n")


def show(spark: SparkSession, what: str, frame: DataFrame) -> None:
    """Every way in which Spark tells a plan."""
    say("plan of", what)
    for mode in ("extended", "codegen", "cost", "formatted"):
        frame.explain(mode=mode)
    java: Any = frame._jdf
    say(java.queryExecution().toString())
    say(java.queryExecution().logical().prettyJson())


def copy(spark: SparkSession, options: dict[str, str], source: str, target: str) -> int:
    """A batch: read, shown, and written."""
    rows = spark.read.format("horolog").options(**options).option("subscribe", source).load()
    show(spark, "a read", rows)
    rows.select("value", "timestamp").write.format("horolog").options(**options).option(
        "topic", target
    ).mode("append").save()
    return rows.count()


def stream(spark: SparkSession, options: dict[str, str], source: str, target: str) -> None:
    """The same as a stream, with its progress stored at the cluster."""
    rows = (
        spark.readStream.format("horolog")
        .options(**options)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("groupId", f"copy-{target}")
        .load()
    )
    show(spark, "a stream", rows)
    query = (
        rows.select("value")
        .writeStream.format("horolog")
        .options(**options)
        .option("topic", target)
        .option("checkpointLocation", str(FOLDER / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    query.explain(extended=True)
    say(query.lastProgress, query.status)


def fail(spark: SparkSession, options: dict[str, str], source: str) -> None:
    """What is raised where the password is wrong, in the driver and in a task."""
    given = {**options, "sasl.password": SETTINGS["wrong"]}
    one = spark.createDataFrame([("value",)], "value string")
    try:
        spark.read.format("horolog").options(**given).option("subscribe", source).load().count()
        raise AssertionError("it was let in")
    except PySparkException as error:
        say("refused:", error)
    try:
        one.write.format("horolog").options(**given).option("topic", source).save()
        raise AssertionError("it was let in")
    except PySparkException as error:
        say("refused:", error)


def page(spark: SparkSession) -> str:
    """What the UI says of all of it."""
    url = spark.sparkContext.uiWebUrl
    assert url is not None
    app = f"{url}/api/v1/applications/{spark.sparkContext.applicationId}"
    paths = [f"{app}/sql?details=true&planDescription=true&length=1000", f"{app}/environment"]
    paths += [f"{url}/{place}/" for place in ("SQL", "environment", "jobs", "stages")]
    queries = json.load(urllib.request.urlopen(paths[0]))
    assert queries
    paths += [f"{url}/SQL/execution/?id={query['id']}" for query in queries]
    return "\n".join(urllib.request.urlopen(path).read().decode() for path in paths)


def main() -> None:
    (FOLDER / "events").mkdir()
    logging = FOLDER / "log4j2.properties"
    logging.write_text(LOGGING)
    spark = session(
        "secrets",
        master="local[2]",
        conf={
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": (FOLDER / "events").as_uri(),
            "spark.ui.port": "0",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
            f"-Dlog4j2.configurationFile={logging.as_uri()}",
        },
    )
    publish_progress(spark)
    for number, options in enumerate(SETTINGS["options"]):
        say("rows:", copy(spark, options, SETTINGS["source"], SETTINGS["targets"][number]))
    stream(spark, SETTINGS["of_stream"], SETTINGS["source"], SETTINGS["targets"][-1])
    fail(spark, SETTINGS["options"][0], SETTINGS["source"])
    spark.sql(
        "CREATE TEMPORARY VIEW guarded USING horolog OPTIONS ("
        + ", ".join(f"`{name}` '{value}'" for name, value in SETTINGS["options"][0].items())
        + f", subscribe '{SETTINGS['source']}')"
    )
    spark.sql("SELECT count(*) FROM guarded").show()
    (FOLDER / "page.html").write_text(page(spark))
    spark.stop()


main()
