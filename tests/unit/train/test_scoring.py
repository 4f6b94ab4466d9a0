"""The trainer reads tokens under two versions' files, and goes on training as if it had not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from openclaw_rl.errors import OpenClawError, TrainError
from openclaw_rl.model.folder import folder_sha256
from openclaw_rl.train.local import LocalTrainer
from openclaw_rl.train.worker.trainer import TorchTrainer
from openclaw_rl.types import ScoreOrder, WeightsRef
from tests.factories.orders import order, sample, settings, weights_of
from tests.tiny import build_tiny_model

SEQUENCES = tuple(sample(n).prompt_ids + sample(n).response_ids for n in range(4))
STARTS = tuple(len(sample(n).prompt_ids) for n in range(4))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("tiny"))


def new_trainer(model: Path) -> TorchTrainer:
    return TorchTrainer(model, device=torch.device("cpu"), dtype=torch.float32)


def weights(folder: Path, number: int) -> WeightsRef:
    return weights_of(folder / f"v{number}")


def score_order(
    candidate: WeightsRef, parent: WeightsRef | None = None, *, micro_batch_tokens: int = 4096
) -> ScoreOrder:
    changed = settings(micro_batch_tokens=micro_batch_tokens)
    return ScoreOrder(sequences=SEQUENCES, starts=STARTS, parent=parent, candidate=candidate, settings=changed)


def test_both_versions_are_read_from_their_files(tiny: Path, tmp_path: Path) -> None:
    trainer = new_trainer(tiny)
    trainer.step(*order(tmp_path, 1))
    trainer.step(*order(tmp_path, 2, parent=str(tmp_path / "v1")))
    first = trainer.score(score_order(weights(tmp_path, 1)))
    assert [len(one) for one in first.parent] == [
        len(ids) - start for ids, start in zip(SEQUENCES, STARTS, strict=True)
    ]
    assert all(value < 0 for one in (*first.parent, *first.candidate) for value in one)
    assert first.parent != first.candidate
    assert first.sha256 == folder_sha256(tmp_path / "v1" / "weights")
    second = trainer.score(score_order(weights(tmp_path, 2), weights(tmp_path, 1)))
    assert second.parent == first.candidate
    assert second.candidate != second.parent
    small = trainer.score(score_order(weights(tmp_path, 2), weights(tmp_path, 1), micro_batch_tokens=16))
    for whole, part in zip(second.candidate, small.candidate, strict=True):
        assert part == pytest.approx(whole, abs=1e-4), "in whatever parts it is computed"


def test_a_reading_leaves_the_line_in_memory_alone(tiny: Path, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    plain, reading = new_trainer(tiny), new_trainer(tiny)
    plain.step(*order(here, 1))
    reading.step(*order(there, 1))
    reading.score(score_order(weights(there, 1)))
    expected = plain.step(*order(here, 2, parent=str(here / "v1"))).sha256
    assert reading.step(*order(there, 2, parent=str(there / "v1"))).sha256 == expected


def test_full_weights_are_told_from_an_adapter_by_their_files(tiny: Path, tmp_path: Path) -> None:
    trainer = new_trainer(tiny)
    trainer.step(*order(tmp_path, 1, settings=settings(use_lora=False, learning_rate=1e-3)))
    report = trainer.score(score_order(weights(tmp_path, 1)))  # settings of today say LoRA
    assert report.parent != report.candidate


def test_files_that_are_gone_are_an_error(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(OpenClawError):
        new_trainer(tiny).score(score_order(weights_of(tmp_path / "nowhere")))


async def test_the_process_reads_and_steps_in_turn(tiny: Path, tmp_path: Path) -> None:
    expected = new_trainer(tiny)
    expected.step(*order(tmp_path, 1))
    process = LocalTrainer(tiny, tmp_path, {"threads": torch.get_num_threads()})
    try:
        report = await process.score(score_order(weights(tmp_path, 1)))
        assert report == expected.score(score_order(weights(tmp_path, 1)))
        with pytest.raises(TrainError):
            await process.score(score_order(weights_of(tmp_path / "no")))
        assert (await process.step(order(tmp_path, 2, parent=str(tmp_path / "v1"))[0])).state == "done"
    finally:
        await process.close()
