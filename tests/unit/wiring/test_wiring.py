"""What a turn's ids, and versions, belong to; and what the loops are put together from."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from openclaw_rl import pipeline
from openclaw_rl.config import EngineConfig, load_config
from openclaw_rl.engine.registry import ENGINES, check_engine, second_engine
from openclaw_rl.errors import ConfigError
from openclaw_rl.model.files import resolve_model
from openclaw_rl.protocols import Renderer
from openclaw_rl.render import load_renderer
from openclaw_rl.store import SqliteStore
from openclaw_rl.train.worker.trainer import TorchTrainer
from openclaw_rl.types import Candidate, Step, Version
from openclaw_rl.wiring.foundation import Foundation, check_settings, model_id_of
from openclaw_rl.wiring.learning import make_rehearsal, make_train_loop, make_trainer
from openclaw_rl.wiring.serving import make_serving
from tests.factories.orders import sample
from tests.tiny import build_tiny_model


def test_two_checkpoints_under_one_name_are_two_models(tmp_path: Path) -> None:
    names = []
    for name in ("one", "two"):
        folder = build_tiny_model(tmp_path / name)
        settings = ("model.name=mine", f"model.checkpoint_path={folder}")
        config = load_config(overrides=settings, env={}).config
        model = resolve_model(config.model)
        names.append(model_id_of(config, model))
        assert model_id_of(load_config(overrides=settings[:1], env={}).config, model).startswith("mine#")
        scripted = load_config(overrides=(*settings, "engine.type=scripted"), env={}).config
        assert model_id_of(scripted, model) == f"scripted:{names[-1]}", "no model sampled these tokens"
    digests = {name.rpartition("#")[2] for name in names}
    assert (len(set(names)), len(digests)) == (2, 1), "the same tokenizer, other weights"


@pytest.mark.parametrize(
    ("served", "kind"),
    [
        (["engine.type=vllm", "engine.url=http://a:1", "engine.api_key=k", "engine.served_model=m"], "embedded"),
        (["engine.type=sglang", "engine.urls=http://a:1,http://b:1"], "embedded"),
        (["engine.type=vllm", "engine.port=8000", "engine.gpu_ids=0,1", "engine.vllm.tensor_parallel=2"], "vllm"),
        (["engine.replicas=2", "engine.gpu_ids=0,1"], "embedded"),
    ],
)
def test_the_judges_engine_is_none_that_is_served(served: list[str], kind: str) -> None:
    config = load_config(env={}, overrides=[*served, "evaluation.judge_path=/prm", "model.name=m"]).config
    check_settings(config, learn=True)
    one, plain = second_engine(config.engine, config.evaluation.judge_gpu_ids), EngineConfig()
    for name in ("url", "urls", "port", "api_key", "served_model", "adapter_dir", "replicas"):
        assert getattr(one, name) == getattr(plain, name)
    check_engine(one)
    assert one.type == kind
    assert one.gpu_ids == config.engine.gpu_ids[:1]
    assert one.vllm.tensor_parallel == 1
    config = load_config(env={}, overrides=[*served, "evaluation.judge_path=/prm", "evaluation.judge_gpu_ids=3"]).config
    assert second_engine(config.engine, config.evaluation.judge_gpu_ids).gpu_ids == (3,)


def test_the_loop_table_names_the_loops_that_run() -> None:
    table = (pipeline.__doc__ or "").partition("woken by\n")[2].partition("\n\n")[0]
    named = re.findall(r"^ {4}([a-z]+) ", table, re.MULTILINE)
    started = re.findall(r'\bstart\("([a-z ]+)"', inspect.getsource(pipeline.run))
    assert len(named) >= 10
    assert set(named) - {"serve"} <= set(started), "serving is what `listening` does"


def test_as_many_exercises_as_are_configured(renderer: Renderer, tmp_path: Path) -> None:
    """The loop beside serving practises what two conversations wish; the reference preset practises nothing."""
    hint = Candidate(hint="Answer in one short sentence.", num_shared=4, suffix_ids=(5, 6))
    samples = [sample(index, session=f"s-{index}", candidates=(hint,)) for index in (0, 1)]
    step = Step(line="ann", number=1, state="planned", planned_at=0.0, seed=0, parent=0, sample_ids=("a", "b"))

    async def release(_: Version) -> None: ...

    def num_exercises(*settings: str) -> int:
        config = load_config(overrides=(f"store.data_dir={tmp_path}", *settings), env={}).config
        unused: Any = None
        practice = make_train_loop(config, unused, unused, renderer, release=release)._practice
        assert practice is not None
        return len(practice.exercises(step, samples))

    assert num_exercises("training.exercises=3") == 3
    assert num_exercises("training.preset=reference") == 0


def test_the_rehearsal_goes_the_way_of_a_step(tmp_path: Path) -> None:
    model = build_tiny_model(tmp_path / "model")
    config = load_config(overrides=(f"store.data_dir={tmp_path}",), env={}).config
    order = make_rehearsal(config, load_renderer(model, "tiny", model))
    trainer = TorchTrainer(model, device=torch.device("cpu"), dtype=torch.float32)
    metrics = trainer.rehearse(order).metrics
    assert metrics["step/samples"] == 1
    assert metrics["gradient/norm"] > 0
    assert {"loss/binary", "loss/opd"} <= set(metrics), "scores and hints"


@pytest.mark.parametrize(("settings", "lends"), [((), False), (("engine.share_heads=true",), True)])
async def test_heads_of_prompts_are_lent_where_the_operator_says_so(
    renderer: Renderer, tmp_path: Path, settings: tuple[str, ...], lends: bool
) -> None:
    config = load_config(overrides=(f"store.data_dir={tmp_path}", "engine.type=scripted", *settings), env={}).config
    foundation = Foundation(config=config, model=resolve_model(config.model), renderer=renderer, model_id="tiny")
    async with await SqliteStore.open(tmp_path) as store:
        serving = await make_serving(foundation, store, tmp_path)
    assert (serving.gateway.heads is not None) is lends


def test_a_loss_that_is_not_there_is_refused_before_anything_starts(tmp_path: Path) -> None:
    """Also by `up --dry-run`, whose engine has nothing to train."""
    config = load_config(overrides=(f"training.custom_loss={tmp_path / 'bad.py'}:loss",), env={}).config
    for engine in ("embedded", "scripted"):
        chosen = config.model_copy(update={"engine": config.engine.model_copy(update={"type": engine})})
        with pytest.raises(ConfigError, match="bad.py of training.custom_loss cannot be read"):
            check_settings(chosen, learn=True)
        check_settings(chosen, learn=False)


@pytest.mark.parametrize(
    ("lacks", "settings", "says"),
    [
        ("scores", (), "no version could be proved; choose engine.type=embedded, or serve without learning"),
        ("hot_adapters", (), "training.use_lora=true makes; choose engine.type=embedded, or training.use_lora=false"),
        (
            "full_weights",
            ("training.use_lora=false",),
            "training.use_lora=false makes; choose engine.type=embedded, or training.use_lora=true",
        ),
        ("hot_adapters full_weights", (), "training.use_lora=true makes; choose engine.type=embedded$"),
    ],
)
def test_what_the_engine_could_not_serve_or_prove_is_not_trained(
    renderer: Renderer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lacks: str,
    settings: tuple[str, ...],
    says: str,
) -> None:
    folder = build_tiny_model(tmp_path / "model")
    config = load_config(overrides=(f"model.checkpoint_path={folder}", *settings), env={}).config
    foundation = Foundation(config=config, model=resolve_model(config.model), renderer=renderer, model_id="tiny")
    assert make_trainer(foundation) is not None
    kind = ENGINES["embedded"]
    less = replace(kind.capabilities, **dict.fromkeys(lacks.split(), False))  # type: ignore[arg-type]
    monkeypatch.setitem(ENGINES, "embedded", kind._replace(capabilities=less))
    with pytest.raises(ConfigError, match=says):
        make_trainer(foundation)
    monkeypatch.setitem(ENGINES, "embedded", kind._replace(capabilities=replace(less, has_weights=False)))
    assert make_trainer(foundation) is None
