"""A teacher behind a URL teaches what the same weights teach from a folder; what it cannot tell is refused at once.

The server speaks vLLM's protocol, over our engine and another tiny model.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from openclaw_rl.config import load_config
from openclaw_rl.engine.embedded.loading import load_engine
from openclaw_rl.engine.embedded.options import EmbeddedOptions
from openclaw_rl.errors import ConfigError, TrainError
from openclaw_rl.model.files import inspect_folder
from openclaw_rl.train.local import LocalTrainer
from openclaw_rl.train.passes.served import ServedRows
from openclaw_rl.train.worker.checkpoint import WEIGHTS
from openclaw_rl.types import StepReport
from openclaw_rl.wiring.foundation import check_teacher
from tests.factories.orders import order
from tests.factories.torch_trainers import new_trainer
from tests.fakes.foreign_servers import VllmServer
from tests.tiny import build_tiny_model

FIT = {"subset_mode": "teacher", "logprob_temperature": 1.0}


@pytest.fixture(scope="module")
def student(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("student") / "tiny")


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another model over the same tokens."""
    folder = build_tiny_model(tmp_path_factory.mktemp("teacher") / "wise")
    random = torch.Generator().manual_seed(7)
    weights = load_file(folder / "model.safetensors")
    moved = {name: value + torch.randn(value.shape, generator=random) * 0.1 for name, value in weights.items()}
    save_file(moved, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture
async def server(teacher: Path) -> AsyncIterator[VllmServer]:
    made = VllmServer(lambda: load_engine(teacher, EmbeddedOptions()), tokenizer=teacher, name="wise")
    await made.start()
    yield made
    await made.close()


async def step(model: Path, folder: Path, **changes: Any) -> StepReport:
    folder.mkdir()
    return await asyncio.to_thread(lambda: new_trainer(model).step(*order(folder, 1, **changes)))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"distillation": "topk"},
        {"distillation": "topk", "subset_mode": "overlap", "hint_selection": "token_optimal"},
        {"distillation": "token"},
        {"distillation": "reverse_kl", "hint_selection": "shortest", "batching": "plain"},
    ],
    ids=str,
)
async def test_it_teaches_what_the_same_weights_teach_from_a_folder(
    student: Path, teacher: Path, server: VllmServer, tmp_path: Path, changes: dict[str, Any]
) -> None:
    near = await step(student, tmp_path / "near", **FIT | changes, teacher="path", teacher_path=str(teacher))
    far = await step(student, tmp_path / "far", **FIT | changes, teacher="path", teacher_url=server.url + "/v1")
    assert server.num_prompts > 0
    assert near.state == far.state == "done"
    assert far.metrics["loss/opd"] == pytest.approx(near.metrics["loss/opd"], rel=1e-3, abs=1e-6)
    weights = [load_file(tmp_path / name / "v1" / WEIGHTS / "adapter_model.safetensors") for name in ("near", "far")]
    for name, expected in weights[0].items():
        torch.testing.assert_close(weights[1][name], expected, atol=2e-4, rtol=1e-3)


async def test_the_trainers_process_is_told_the_key_and_nobody_else(
    student: Path, server: VllmServer, tmp_path: Path
) -> None:
    server.key = "s3cret"
    options = {"device": "cpu"}
    changes: dict[str, Any] = {**FIT, "teacher": "path", "teacher_url": server.url}
    wanted, _ = order(tmp_path, 1, **changes)
    assert "s3cret" not in str(wanted)
    trainer = LocalTrainer(student, tmp_path / "versions", options, teacher_key="s3cret")
    assert (await trainer.step(wanted)).state == "done"
    await trainer.close()
    trainer = LocalTrainer(student, tmp_path / "others", options)
    with pytest.raises(TrainError, match=r"set training\.teacher_api_key"):
        await trainer.step(wanted)
    await server.close()
    with pytest.raises(TrainError, match=r"does not answer.*choose another with training\.teacher"):
        await trainer.step(wanted)
    await trainer.close()


async def check(student: Path, server: VllmServer, *overrides: str) -> None:
    fit = [f"training.{name}={value}" for name, value in FIT.items()]
    training = load_config(env={}, overrides=[f"training.teacher_path={server.url}", *fit, *overrides]).config.training
    model = inspect_folder("tiny", student, tokenizer_path=student)
    await asyncio.to_thread(check_teacher, training, model)


async def test_a_server_that_can_is_taken(student: Path, server: VllmServer) -> None:
    await check(student, server)
    await check(student, server, "training.distillation=topk", "training.teacher_model=wise")
    await check(student, server, "training.subset_mode=student")


@pytest.mark.parametrize(
    ("override", "remedy"),
    [
        ("training.subset_mode=student training.distillation=topk", r"set training\.subset_mode to teacher or overlap"),
        ("training.logprob_temperature=null", r"training\.logprob_temperature is null: set it to 1"),
        ("training.teacher_temperature=2", r"training\.teacher_temperature is 2\.0: set it to 1"),
        ("training.teacher_model=other", r"check training\.teacher_model"),
    ],
)
async def test_settings_that_ask_for_more_are_refused(
    student: Path, server: VllmServer, override: str, remedy: str
) -> None:
    with pytest.raises(ConfigError, match=remedy):
        await check(student, server, *override.split())


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("tells_prompts", False, "prompt_logprobs, as vLLM's does"),
        ("max_logprobs", 5, "higher --max-logprobs, or lower"),
        ("rotate", 1, "another tokenizer"),
        ("key", "k", r"set training\.teacher_api_key"),
    ],
)
async def test_a_server_that_cannot_is_refused_with_what_to_change(
    student: Path, server: VllmServer, name: str, value: Any, remedy: str
) -> None:
    setattr(server, name, value)
    with pytest.raises(ConfigError, match=remedy):
        await check(student, server)


async def test_nobody_there_and_no_address_are_refused(student: Path, server: VllmServer) -> None:
    await server.close()
    with pytest.raises(ConfigError, match=r"teacher_url: the teacher at http://127\.0\.0\.1:\d+ does not answer"):
        await check(student, server)
    with pytest.raises(ConfigError, match=r"name it as http://10\.0\.0\.5:8000"):
        await check(student, server, "training.teacher_path=null", "training.teacher_url=ftp://teacher")


def test_what_was_not_told_is_no_number() -> None:
    rows = ServedRows((3,), [{7: -0.5, 8: -1.5, 3: -4.0}], 2, torch.device("cpu"))
    told = rows.logprob(torch.tensor([[8, 3, 5, 7]]))[0]
    assert told[[0, 1, 3]].tolist() == [-1.5, -4.0, -0.5]
    assert told[2].isnan()
    assert [part.tolist() for part in rows.top_k(2)] == [[[7, 8]], [[-0.5, -1.5]]]
