"""Steps and versions on /metrics, beside what the gateway counts."""

from __future__ import annotations

from openclaw_rl.gateway.api.metrics import Metrics
from openclaw_rl.tracking.meanings import MEANINGS
from openclaw_rl.tracking.prometheus import PrometheusObserver
from openclaw_rl.types import Skip
from tests.factories.events import step, version


def samples(metrics: Metrics) -> dict[str, float]:
    lines = [line for line in metrics.text().decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_gauges_hold_the_last_step_and_counters_all() -> None:
    metrics = Metrics()
    observer = PrometheusObserver(metrics.registry)
    observer.stepped(step(3))
    observer.stepped(step(4, metrics={"loss/total": 0.2, "my own/metric-1": 5.0}))
    observer.stepped(step(5, state="discarded", metrics={}, reason="nan"))
    observer.skipped("ann", ["s-9.0", "s-9.1"], Skip.STALE)
    found = samples(metrics)
    assert found["openclaw_rl_loss_total"] == 0.2
    assert found["openclaw_rl_loss_binary"] == 0.12
    assert found["openclaw_rl_loss_opd"] == 0.29
    assert found["openclaw_rl_reward_mean"] == -0.5
    assert found["openclaw_rl_reward_std"] == 0.866
    assert found["openclaw_rl_gradient_norm"] == 1.5
    assert found["openclaw_rl_learning_rate"] == 0.0003
    assert found["openclaw_rl_policy_age"] == 0.25
    assert found["openclaw_rl_sample_overlap"] == 3.5
    assert found["openclaw_rl_my_own_metric_1"] == 5.0
    assert found['openclaw_rl_steps_total{state="done"}'] == 2
    assert found['openclaw_rl_steps_total{state="discarded"}'] == 1
    assert found["openclaw_rl_trained_samples_total"] == 6
    assert found['openclaw_rl_skipped_samples_total{reason="stale"}'] == 2
    assert "ann" not in metrics.text().decode().replace("channel", "")
    assert f"# HELP openclaw_rl_loss_opd {MEANINGS['loss/opd']}" in metrics.text().decode()


def test_an_evaluation_is_a_gauge_only_once_there_was_one() -> None:
    metrics = Metrics()
    observer = PrometheusObserver(metrics.registry)
    assert "openclaw_rl_eval_capability" not in samples(metrics)
    observer.evaluated(step(3, metrics={"eval/capability": 0.5}))
    assert samples(metrics)["openclaw_rl_eval_capability"] == 0.5
    assert 'openclaw_rl_steps_total{state="done"}' not in samples(metrics), "no step ended"


def test_versions_are_counted_by_their_state() -> None:
    metrics = Metrics()
    observer = PrometheusObserver(metrics.registry, [version(1, "retired"), version(2), version(1, line="ann")])

    def states() -> dict[str, float]:
        found = samples(metrics)
        names = ("candidate", "live", "retired", "rejected", "rolled_back")
        return {name: found[f'openclaw_rl_versions{{state="{name}"}}'] for name in names}

    assert states() == {"candidate": 0, "live": 2, "retired": 1, "rejected": 0, "rolled_back": 0}
    observer.changed(version(3))
    observer.changed(version(4, "rejected"))
    assert states() == {"candidate": 0, "live": 2, "retired": 2, "rejected": 1, "rolled_back": 0}
    observer.changed(version(2))
    observer.changed(version(3, "rolled_back"))
    assert states() == {"candidate": 0, "live": 2, "retired": 1, "rejected": 1, "rolled_back": 1}
