"""docs/tracking.md names every metric, every counter and every field of the records."""

from __future__ import annotations

import json
import re
from pathlib import Path

from prometheus_client import CollectorRegistry

from openclaw_rl.tracking.meanings import MEANINGS
from openclaw_rl.tracking.prometheus import PrometheusObserver
from openclaw_rl.tracking.records import STEPS, TURNS, RecordsObserver
from tests.factories.events import credited, step
from tests.pages import DOCS, named, rows, section

PAGE = DOCS / "tracking.md"
METRICS = {row[0].strip("`"): row[1] for row in rows(section(PAGE, "Metrics of a step"))}
COUNTERS = {row[0].strip("`") for row in rows(section(PAGE, "Prometheus"))}


def test_every_metric_has_a_row_with_a_meaning_and_there_is_no_other() -> None:
    assert sorted(METRICS) == sorted(MEANINGS)
    assert all(METRICS.values())


def test_every_counter_is_on_the_page() -> None:
    registry = CollectorRegistry()
    PrometheusObserver(registry)
    gauges = {"openclaw_rl_" + re.sub(r"\W", "_", name) for name in MEANINGS}
    others = {
        f"{family.name}_total" if family.type == "counter" else family.name for family in registry.collect()
    } - gauges
    assert others == COUNTERS - {"openclaw_rl_judgements_total", "openclaw_rl_credits_total"}


def test_every_field_of_a_record_is_on_the_page(tmp_path: Path) -> None:
    records = RecordsObserver(tmp_path)
    records.credited(*credited())
    records.stepped(step())
    told = set(named(section(PAGE, "Records")))
    for name in (TURNS, STEPS):
        assert name in told
        assert set(json.loads((tmp_path / name).read_text())) <= told
