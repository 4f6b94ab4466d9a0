"""The loop over a real store with the real trainer on a tiny model, in this process."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from openclaw_rl.cli.doctor.probes import open_files
from openclaw_rl.errors import TrainError
from openclaw_rl.model.folder import unfinished
from openclaw_rl.store import SqliteStore, StoreReader
from tests.factories.orders import sample
from tests.factories.stored import put_samples
from tests.factories.torch_trainers import new_trainer
from tests.fakes.trainers import TrainerHere
from tests.faults.training_child import make_loop, make_releaser
from tests.tiny import build_tiny_model


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.mark.parametrize("poison", [math.inf, math.nan, 1e38])
async def test_a_poisoned_sample_is_found_and_the_others_are_learned_from(
    tiny: Path, tmp_path: Path, poison: float
) -> None:
    samples = [sample(index, num_hints=0, created_at=float(index)) for index in range(3)]
    size = len(samples[1].response_ids)
    samples[1] = sample(1, num_hints=0, created_at=1.0, advantages=(poison,) * size, logprobs=(-6.0,) * size)
    async with await SqliteStore.open(tmp_path) as store:
        await put_samples(store, samples)
        releaser = make_releaser(store)
        await releaser.restore()
        loop = make_loop(store, TrainerHere(new_trainer(tiny), tmp_path / "versions"), releaser, clip_grad_norm=1.0)
        await loop.work(at_once=True)
        versions = await store.lessons.versions("local")
    steps = StoreReader.open(tmp_path).steps("local")
    assert [(step.state, len(step.sample_ids), step.parent) for step in steps] == [
        ("discarded", 3, 0),
        ("done", 1, 0),
        ("discarded", 1, 2),
        ("done", 1, 2),
    ]
    assert steps[2].sample_ids == (samples[1].id,)
    assert "the loss is" in steps[0].reason
    assert "the loss is" in steps[2].reason
    assert [version.number for version in versions] == [2, 4]
    assert {folder.name for folder in (tmp_path / "versions").iterdir()} == {"v2", "v4"}


async def test_a_place_that_cannot_be_written_to_is_a_delay(tiny: Path, tmp_path: Path) -> None:
    """First no folder can be made, then the new name is taken by something that is no checkpoint."""
    folder = tmp_path / "versions"
    async with await SqliteStore.open(tmp_path) as store:
        folder.write_text("a file in the place of the folder")
        await put_samples(store, [sample(0)])
        releaser = make_releaser(store)
        await releaser.restore()
        loop = make_loop(store, TrainerHere(new_trainer(tiny), folder), releaser)
        with pytest.raises(TrainError, match=r"training\.save_path"):
            await loop.work(at_once=True)
        folder.unlink()
        folder.mkdir()
        unfinished(folder / "v1").write_text("a file in the place of the unfinished checkpoint")
        with pytest.raises(TrainError, match=r"training\.save_path"):
            await loop.work(at_once=True)
        unfinished(folder / "v1").unlink()
        await loop.work(at_once=True)
        (version,) = await store.lessons.versions()
        assert (version.number, version.state) == (1, "live")


async def test_only_the_owner_reaches_what_was_learned(tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / "versions"
    before = os.umask(0o022)
    try:
        async with await SqliteStore.open(tmp_path) as store:
            await put_samples(store, [sample(0)])
            releaser = make_releaser(store)
            await releaser.restore()
            await make_loop(store, TrainerHere(new_trainer(tiny), folder), releaser).work(at_once=True)
    finally:
        os.umask(before)
    made = (folder, folder / "v1", folder / "v1" / "trainer")
    assert [path.stat().st_mode & 0o777 for path in made] == [0o700] * 3
    assert open_files(tmp_path) == []
