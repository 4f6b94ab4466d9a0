"""docs/grafana.json asks for nothing that /metrics does not have, with the labels that it has."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from openclaw_rl.gateway.api.metrics import Metrics
from openclaw_rl.tracking.prometheus import PrometheusObserver

DASHBOARD: dict[str, Any] = json.loads((Path(__file__).parents[3] / "docs" / "grafana.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
_NAME = re.compile(r"openclaw_rl_\w+")
_BY = re.compile(r"by \(([^)]*)\)")


def known() -> dict[str, set[str]]:
    """Every name that Prometheus can be asked for, with its labels."""
    metrics = Metrics()
    PrometheusObserver(metrics.registry)
    return {name: labels for family in families(metrics.registry) for name, labels in family.items()}


def families(registry: CollectorRegistry) -> list[dict[str, set[str]]]:
    told = []
    for collector in {id(one): one for one in registry._names_to_collectors.values()}.values():
        labels = set(getattr(collector, "_labelnames", ()))
        for family in collector.describe() if hasattr(collector, "describe") else ():
            suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(family.type, ("",))
            told.append({f"{family.name}{end}": labels | ({"le"} if end == "_bucket" else set()) for end in suffixes})
    return told


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_every_metric_of_a_panel_is_there_with_its_labels(panel: dict[str, Any]) -> None:
    there = known()
    assert panel["targets"]
    for target in panel["targets"]:
        names = _NAME.findall(target["expr"])
        assert names, target
        for name in names:
            assert name in there, f"{panel['title']}: {name}"
        asked = {label.strip() for found in _BY.findall(target["expr"]) for label in found.split(",")}
        shown = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        assert (asked | shown) <= there[names[0]], target


def test_panels_neither_overlap_nor_share_a_number() -> None:
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
