"""Snapshots on a service are removed with all that belongs to them, also what a kill left."""

from __future__ import annotations

from pathlib import Path

import pytest

from openclaw_rl.cloud.desk import ServiceDesk
from openclaw_rl.cloud.service import Form
from openclaw_rl.cloud.tinker.service import TinkerService
from openclaw_rl.config import load_config
from openclaw_rl.errors import TrainError
from openclaw_rl.train.cloud.trainer import CloudWeights, names_file
from openclaw_rl.train.cloud.training import write_names
from openclaw_rl.types import WeightsRef
from tests.cloud.services import KEY, NAME, LocalService


def keeper_of(service: LocalService, folder: Path) -> tuple[CloudWeights, ServiceDesk]:
    given = (f"store.data_dir={folder}", "training.backend=tinker", f"training.tinker_url={service.url}")
    more = (f"model.name={NAME}", "training.cloud.consent=true", "engine.wait_s=3")
    desk = ServiceDesk.of(load_config(env={"TINKER_API_KEY": KEY}, overrides=[*given, *more]).config)
    return CloudWeights(folder, desk), desk


async def test_what_a_step_saved_is_removed_whole(service: LocalService, tmp_path: Path) -> None:
    keeper, desk = keeper_of(service, tmp_path)
    there = TinkerService(service.access())
    learner = there.learner()
    await learner.begin(None, Form(rank=4, seed=0))
    paths = {}
    for number in (1, 2):
        paths[number] = names_file(tmp_path, "local", number, desk)
        write_names(paths[number], learner.names(f"v{number}-a"))
    first = WeightsRef(uri=await learner.save("v1-a"), sha256="")
    names = learner.names("v1-a")
    assert all(service.folder_of(name).is_dir() for name in names)
    await keeper.discard(first)
    assert not any(service.folder_of(name).exists() for name in names)
    assert not paths[1].exists()
    await keeper.discard(first)
    await keeper.abandon("local", 2)
    assert not paths[2].exists(), "it was never saved"
    await keeper.abandon("local", 3)
    await learner.save("v2-a")
    write_names(paths[2], learner.names("v2-a"))
    await keeper.abandon("local", 2)
    assert not any(service.folder_of(name).exists() for name in learner.names("v2-a"))
    await there.close()


async def test_what_cannot_be_removed_now_is_said(service: LocalService, tmp_path: Path) -> None:
    keeper, desk = keeper_of(service, tmp_path)
    path = names_file(tmp_path, "local", 1, desk)
    write_names(path, ("tinker://run/sampler_weights/v1", "tinker://run/weights/v1"))
    service.order(down=True)
    with pytest.raises(TrainError, match="stays for now"):
        await keeper.abandon("local", 1)
    assert path.exists(), "it is tried again"
    with pytest.raises(TrainError, match="is a folder"):
        await keeper.discard(WeightsRef.of_folder(tmp_path, ""))
    with pytest.raises(TrainError, match="takes no adapter from elsewhere"):
        keeper.adopt(tmp_path, "local")
