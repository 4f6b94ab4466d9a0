"""docs/tracking.md names every metric, every counter and every field of the records."""

from __future__ import annotations

import json
import re
from pathlib import Path

from prometheus_client import CollectorRegistry

from openclaw_rl.tracking.meanings import MEANINGS
from openclaw_rl.tracking.prometheus import PrometheusObserver
from openclaw_rl.tracking.records import STEPS, TURNS, RecordsObserver
from tests.unit.tracking.made import credited, step

PAGE = (Path(__file__).parents[3] / "docs" / "tracking.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| `([^`]+)` \| (.+) \|$", PAGE, re.MULTILINE))


def test_every_metric_is_on_the_page_with_its_meaning() -> None:
    assert {name: ROWS[name] for name in MEANINGS} == MEANINGS


def test_every_counter_is_on_the_page() -> None:
    registry = CollectorRegistry()
    PrometheusObserver(registry)
    gauges = {"openclaw_rl_" + re.sub(r"\W", "_", name) for name in MEANINGS}
    others = {
        f"{family.name}_total" if family.type == "counter" else family.name for family in registry.collect()
    } - gauges
    assert others == {name for name in ROWS if name.startswith("openclaw_rl_")} - {
        "openclaw_rl_judgements_total",
        "openclaw_rl_credits_total",
    }


def test_every_field_of_a_record_is_on_the_page(tmp_path: Path) -> None:
    records = RecordsObserver(tmp_path)
    records.credited(*credited())
    records.stepped(step())
    section = PAGE.partition("## Records")[2].partition("\n## ")[0]
    for name in (TURNS, STEPS):
        told = section.partition(f"`{name}` has a line")[2]
        assert set(json.loads((tmp_path / name).read_text())) <= set(re.findall(r"`(\w+)`", told))
