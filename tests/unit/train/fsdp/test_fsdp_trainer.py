"""Several processes take the steps of one: the same metrics, weights and files, also when their number changes; and one
that dies takes nothing with it but its order.

What differs are last bits: matrices are multiplied in other shapes, and AdamW divides gradients by their own size. An
update differs by less than 1e-3 of its length, a metric by less than 1e-4 of itself.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from openclaw_rl.errors import TrainerLost, TrainError
from openclaw_rl.train.fsdp.__main__ import device_of
from openclaw_rl.train.fsdp.students import open_sharded
from openclaw_rl.train.fsdp.trainer import FsdpTrainer
from openclaw_rl.train.worker.crew import ALONE
from openclaw_rl.train.worker.trainer import TorchTrainer
from openclaw_rl.types import Sample, ScoreOrder, StepOrder, StepReport, WeightsRef
from tests.factories.orders import exercise, order, sample, settings
from tests.factories.torch_trainers import new_trainer
from tests.tiny import build_tiny_model

pytestmark = pytest.mark.timeout(300)

UPDATE_TOLERANCE, METRIC_TOLERANCE = 1e-3, 1e-4
LORA: dict[str, object] = {
    "teacher": "ema",
    "critic": True,
    "kl_coef": 0.1,
    "num_epochs": 2,
    "gradient_accumulation_steps": 2,
}
FULL: dict[str, object] = {"use_lora": False, "learning_rate": 1e-3, "use_gradient_checkpointing": True}


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """As each rank has: two that wait for each other, beside processes that compute, take many times as long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("fsdp") / "model")


def samples(number: int) -> tuple[Sample, ...]:
    """Of four conversations, of which one is long and one can move nothing."""
    made = [sample(10 * number + at) for at in range(6)]
    sessions = ("a", "a", "b", "c", "a", "d")
    changed = [
        replace(one, session=name, id=f"{name}{at}") for at, (one, name) in enumerate(zip(made, sessions, strict=True))
    ]
    return (*changed[:-1], replace(changed[-1], w_rl=0.0, w_opd=0.0, candidates=()))


def given(folder: Path, number: int, **changes: object) -> StepOrder:
    parent = str(folder / f"v{number - 1}") if number > 1 else None
    made, _ = order(folder, number, *samples(number), parent=parent, **changes)
    if not changes.get("use_lora", True):
        return made
    return replace(
        made, anchors=((1, 40, 41, 42),), exercises=(exercise(),), stop_token_ids=tuple(range(2, 400))
    )  # soon


def weights(folder: Path, number: int) -> dict[str, Tensor]:
    files = (folder / f"v{number}" / "weights").glob("*.safetensors")
    return {name: tensor for file in files for name, tensor in load_file(file).items()}


def assert_same_update(one: Path, many: Path, number: int, before: Mapping[str, Tensor]) -> None:
    a, b = weights(one, number), weights(many, number)
    assert a.keys() == b.keys()
    moved = sum(float((a[name] - before.get(name, 0.0)).square().sum()) for name in a)
    apart = sum(float((a[name] - b[name]).square().sum()) for name in a)
    assert moved > 0
    assert apart <= UPDATE_TOLERANCE**2 * moved


def assert_same_metrics(one: StepReport, many: StepReport) -> None:
    assert one.metrics.keys() == many.metrics.keys()
    for name, value in one.metrics.items():
        if not name.startswith("time/") and name not in ("step/seconds", "step/overhead_share", "step/tokens_computed"):
            assert many.metrics[name] == pytest.approx(value, rel=METRIC_TOLERANCE, abs=1e-6), name


async def test_two_processes_take_the_steps_of_one_and_a_dead_one_costs_its_order_alone(
    model: Path, tmp_path: Path
) -> None:
    alone = new_trainer(model)
    one, many = tmp_path / "one", tmp_path / "many"
    options, scratch = {"threads": 1, "device": "cpu"}, tmp_path / "orders"
    together = FsdpTrainer(model, many, options, num_ranks=2, scratch=scratch)
    try:
        for changes in (LORA, FULL):
            for folder in (one, many):
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
            await same_steps(alone, together, one, many, changes, model)
            # One process goes on from what two have written.
            before = weights(one, 2)
            alone.step(given(one, 3, **changes), one / "v3")
            new_trainer(model).step(given(many, 3, **changes), many / "v3")
            assert_same_update(one, many, 3, before)
        first, second = together.pids
        os.kill(second, signal.SIGSTOP)  # so that the first waits for it in the middle of the step
        asking = asyncio.create_task(together.step(given(many, 4, **FULL)))
        await asyncio.sleep(0.2)
        os.kill(second, signal.SIGKILL)
        with pytest.raises(TrainerLost, match="-9"):
            await asking
        assert not psutil.pid_exists(first)
        assert not (many / "v4").exists()
        # All ranks fail alike, and go on; then two go on from what one has written.
        with pytest.raises(TrainError, match="rank 0: .*v6.*neither") as refused:
            await together.step(given(many, 7, **FULL))
        assert not isinstance(refused.value, TrainerLost)
        pids = together.pids
        alone.step(given(one, 4, **FULL), one / "v4")
        await together.step(given(many, 4, **FULL))
        assert_same_update(one, many, 4, weights(one, 3))
        assert together.pids == pids
    finally:
        await together.close()
    assert not any(psutil.pid_exists(pid) for pid in pids)


async def same_steps(
    alone: TorchTrainer, together: FsdpTrainer, one: Path, many: Path, changes: dict[str, object], model: Path
) -> None:
    """Two steps and a reading by both."""
    before: dict[str, Tensor] = {} if changes is LORA else load_file(model / "model.safetensors")
    reports: list[StepReport] = []
    for number in (1, 2):
        expected = alone.step(given(one, number, **changes), one / f"v{number}")
        reports.append(await together.step(given(many, number, **changes)))
        assert_same_metrics(expected, reports[-1])
        assert_same_update(one, many, number, before)
        before = weights(one, number)
    asked = ((1, 40, 41, 42, 43), (1, 50, 51), (1, 9, 8, 7, 6, 5, 4))
    values = settings(**changes)
    scoring = ScoreOrder(sequences=asked, starts=(2, 1, 3), parent=None, candidate=_ref(many, 2), settings=values)
    ours, theirs = await together.score(scoring), alone.score(replace(scoring, candidate=_ref(one, 2)))
    for mine, yours in zip((*ours.parent, *ours.candidate), (*theirs.parent, *theirs.candidate), strict=True):
        assert mine == pytest.approx(yours, abs=1e-4)
    assert ours.sha256 == reports[-1].sha256
    if changes is LORA:
        PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(model), many / "v2" / "weights")
    else:
        AutoModelForCausalLM.from_pretrained(many / "v2" / "weights")


def _ref(folder: Path, number: int) -> WeightsRef:
    return WeightsRef.of_folder(folder / f"v{number}" / "weights", "")


@pytest.fixture
def loss_of_one(tmp_path: Path) -> str:
    """It fails on the longest answer alone, which one rank has."""
    path = tmp_path / "mine.py"
    path.write_text(
        "from openclaw_rl.train.objective.hybrid import hybrid_loss\n\n\n"
        "def loss(rows, sample, target, settings):\n"
        "    if len(sample.mask) == 8:\n        raise ZeroDivisionError('mine')\n"
        "    return hybrid_loss(rows, sample, target, settings)\n"
    )
    return f"{path}:loss"


@pytest.mark.scale
async def test_a_rank_that_fails_alone_ends_all_and_three_go_on_from_one(
    model: Path, tmp_path: Path, loss_of_one: str
) -> None:
    trainer = FsdpTrainer(model, tmp_path, {"threads": 1, "device": "cpu"}, num_ranks=3)
    try:
        new_trainer(model).step(given(tmp_path, 1), tmp_path / "v1")
        with pytest.raises(TrainerLost, match="rank . of|rank .: .*mine"):
            await trainer.step(given(tmp_path, 2, custom_loss=loss_of_one))
        assert (await trainer.step(given(tmp_path, 2))).state == "done"
    finally:
        await trainer.close()


def test_what_it_cannot_train_is_refused_with_the_remedy(model: Path) -> None:
    with pytest.raises(TrainError, match=r"Llama's and Qwen3's.*training\.backend=local"):
        open_sharded(
            model,
            None,
            mesh=None,  # type: ignore[arg-type]
            device=torch.device("cpu"),
            dtype=torch.float32,
            crew=ALONE,
        )
    with pytest.raises(TrainerLost, match=r"GPU 63, and torch sees .* set training\.gpus_per_node or"):
        device_of({"device": "cuda"}, local=63)
    with pytest.raises(TrainerLost, match="GPU 64"):
        device_of({"device": "cuda", "gpu_ids": [2, 64]}, local=1)
