"""What the dashboard and the alert rules ask Prometheus for."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

VARIABLES = {"$topic": ".*", "$__rate_interval": "1m"}
CONDITION = re.compile(r" [<>] [\d.]+$")


def dashboard_queries(docker: Path) -> list[str]:
    """The queries of all panels, with variables as Grafana fills them in."""
    dashboard = json.loads((docker / "grafana" / "dashboard.json").read_text("utf-8"))
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    for name, value in VARIABLES.items():
        queries = [query.replace(name, value) for query in queries]
    return queries


def rule_queries(docker: Path) -> list[str]:
    """What the alerts look at, without the bound from which on they come."""
    groups: list[Any] = yaml.safe_load((docker / "alerts.yaml").read_text("utf-8"))["groups"]
    queries = []
    for rule in (rule for group in groups for rule in group["rules"]):
        query, bounds = CONDITION.subn("", rule["expr"])
        assert bounds == 1, rule["alert"]
        queries.append(query)
    return queries
