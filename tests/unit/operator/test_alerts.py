"""Alerts of the chart: they ask for metrics that exist, and the page has a line for each of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import merlot_operator.metrics  # noqa: F401 - registers the operator's metrics
from merlot.telemetry import REGISTRY

ROOT = Path(__file__).parents[3]
METRIC = re.compile(r"\b(?:merlot_|mergeRollup)\w+")


def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load((ROOT / "charts" / "merlot" / "files" / "alerts.yaml").read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


def names_of_metrics() -> set[str]:
    names: set[str] = set()
    for metric in REGISTRY.collect():
        names.add(metric.name)
        names.add(f"{metric.name}_total" if metric.type == "counter" else metric.name)
    return names


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_asks_for_metrics_that_exist(rule: dict[str, Any]) -> None:
    asked = set(METRIC.findall(rule["expr"])) - {"merlot_"}
    assert asked or "kubelet_volume_stats" in rule["expr"]
    assert asked <= names_of_metrics()
    assert rule["labels"]["severity"] in ("warning", "critical")


def test_the_page_has_a_line_for_each_alert() -> None:
    page = (ROOT / "docs" / "alerts.md").read_text()
    assert re.findall(r"^\| (Merlot\w+) \|", page, re.MULTILINE) == [rule["alert"] for rule in rules()]
