"""Those who look on: everything they show of a running system; and that without them the same is learned."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]

from openclaw_rl.config import TrainingConfig, load_config
from openclaw_rl.store import SqliteStore, StoreReader
from openclaw_rl.tracking import Observer, Observers, make_observers
from openclaw_rl.tracking.meanings import MEANINGS
from openclaw_rl.train.loop import LoopSettings, TrainLoop
from openclaw_rl.train.planning import Planner
from openclaw_rl.types import Sample, Step, Version
from tests.factories import orders
from tests.factories.stored import put_samples
from tests.factories.torch_trainers import new_trainer
from tests.fakes.trainers import TrainerHere
from tests.server import OPEN_GATE, Server
from tests.tiny import build_tiny_model

pytestmark = pytest.mark.timeout(240)

NUM_TURNS = 6
CLOCKED = {"step/seconds", "step/overhead_share"}


class Failing(Observer):
    name = "one that fails"

    def stepped(self, step: Step) -> None:
        raise RuntimeError("no")


async def tell_credits(store: SqliteStore, observers: Observers) -> None:
    for credit in await store.lessons.credits("s"):
        judged = await store.lessons.judged_turn(credit.session, credit.index)
        assert judged is not None
        observers.credited(judged, credit)


async def learn(model: Path, data_dir: Path, observers: Observers) -> tuple[list[dict[str, Any]], list[str]]:
    """Everything that is learned of these turns: the step rows without timings, and what each version hashes to."""
    async with await SqliteStore.open(data_dir) as store:
        await put_samples(store, [orders.sample(index, line="ann") for index in range(NUM_TURNS)])
        await tell_credits(store, observers)

        async def release(version: Version) -> None:
            await store.lessons.set_version_state(version.line, version.number, "live")
            observers.changed(replace(version, state="live"))

        def choose(samples: Sequence[Sample]) -> Sequence[Sample]:
            return samples

        plan = TrainingConfig(batch_size=2, max_steps=None, max_staleness=16, replay_max_age=4, anchors=0, seed=5)
        settings = LoopSettings(batch_size=2, max_wait_s=0.0, pause_s=0.0, training=orders.settings(lora_dropout=0.1))
        planner = Planner(store.lessons, plan, choose=choose, on_skip=observers.skipped)
        loop = TrainLoop(
            store.lessons,
            TrainerHere(new_trainer(model), data_dir / "versions"),
            planner,
            settings,
            release=release,
            on_step=observers.stepped,
            clock=lambda: 50.0,
        )
        await loop.work()
        await asyncio.to_thread(observers.close)
    reader = StoreReader.open(data_dir)
    steps = [asdict(step) for step in reader.steps("ann")]
    for step in steps:
        step["metrics"] = {
            name: value
            for name, value in step["metrics"].items()
            if name not in CLOCKED and not name.startswith("time/")
        }
    return steps, [version.sha256 for version in reader.versions("ann")]


async def test_removing_observers_changes_no_weight(tmp_path: Path) -> None:
    model = build_tiny_model(tmp_path / "model")
    overrides = [
        f"store.data_dir={tmp_path / 'watched'}",
        f"tracking.tensorboard_dir={tmp_path / 'board'}",
        "tracking.record_enabled=true",
    ]
    said: list[str] = []
    config = load_config(env={}, overrides=overrides).config
    watched = make_observers(config, registry=CollectorRegistry(), say=said.append)
    alone = await learn(model, tmp_path / "alone", Observers())
    assert await learn(model, tmp_path / "watched", watched) == alone
    assert await learn(model, tmp_path / "failing", Observers([Failing()])) == alone
    steps, hashes = alone
    assert len(steps) == len(set(hashes)) == NUM_TURNS // 2
    assert [step["metrics"]["policy/age"] for step in steps] == [0.0, 1.0, 2.0], "v0 sampled every turn"
    assert (len(said), said[-1].endswith("→ v3.ann live")) == (3, True)
    assert len((tmp_path / "watched" / "records" / "turns.jsonl").read_text().splitlines()) == NUM_TURNS
    unknown = {name for step in steps for name in step["metrics"]} - set(MEANINGS)
    assert not unknown, f"tracking/meanings.py does not say what {unknown} are"


def test_a_correction_is_seen_everywhere(tmp_path: Path) -> None:
    data, board = tmp_path / "data", tmp_path / "board"
    settings = (
        "engine.type=embedded",
        f"model.name={build_tiny_model(tmp_path / 'model')}",
        "training.batch_size=1",
        "training.max_wait_s=0.1",
        "training.max_steps=1",
        "training.truncated=score",  # a random model never comes to an end
        *OPEN_GATE,
        "tracking.record_enabled=true",
        f"tracking.tensorboard_dir={board}",
        "tracking.wandb_mode=offline",
    )
    with Server(data, *settings) as server:
        asked = [{"role": "user", "content": "what is rain"}]
        said = server.chat(asked, max_tokens=12, temperature=0).json()["choices"][0]["message"]["content"]
        corrected = [*asked, {"role": "assistant", "content": said}, {"role": "user", "content": "no, shorter please"}]
        assert server.chat(corrected, max_tokens=12).status_code == 200
        output = data / "output.txt"
        server.wait_until(lambda: "→ v1 live" in output.read_text(), timeout_s=120.0)
        shown = httpx.get(f"{server.url}/metrics").text
        assert server.stop() == 0
    (line,) = (line for line in output.read_text().splitlines() if line.startswith("step 1 of local: loss "))
    assert "reward " in line
    for wanted in (
        'openclaw_rl_steps_total{state="done"} 1.0',
        'openclaw_rl_versions{state="live"} 1.0',
        'openclaw_rl_credits_total{became="sample"} 1.0',
        "openclaw_rl_policy_age 0.0",
        "openclaw_rl_trained_samples_total 1.0",
    ):
        assert wanted in shown
    (turn,) = map(json.loads, (data / "records" / "turns.jsonl").read_text().splitlines())
    (step,) = map(json.loads, (data / "records" / "steps.jsonl").read_text().splitlines())
    assert (turn["line"], turn["outcome"], turn["skip"]) == ("local", "scored", None)
    assert (step["samples"], step["version"]) == (turn["samples"], "v1")
    curves = EventAccumulator(str(board / "local")).Reload()
    assert curves.Scalars("loss/total")[0].value == pytest.approx(step["metrics"]["loss/total"], rel=1e-5)
    assert len(list(data.glob("wandb/offline-run-*/*.wandb"))) == 1
    assert "rain" not in (data / "records" / "turns.jsonl").read_text()
