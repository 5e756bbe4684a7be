"""`make bench-spark`: its names, and what it refuses."""

import pytest

from horolog.bench.spark import NAMES, PARQUET, main


def test_the_names_are_those_that_others_compare() -> None:
    assert set(NAMES) == {
        "spark_read_all",
        "spark_read_timestamp",
        "spark_prebuilt_all",
        "spark_prebuilt_timestamp",
        "spark_read_range",
        "spark_write",
        "spark_latency_p50",
        "spark_latency_p95",
    }
    assert set(PARQUET) < set(NAMES)


def test_an_unknown_name_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spark_read"]) == 2
    assert "spark_read; there are spark_read_all, " in capsys.readouterr().err
