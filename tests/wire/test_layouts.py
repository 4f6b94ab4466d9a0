"""configs/layouts/: each layout of docs/scaling.md loads, is planned, and starts as far as this machine lets it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from openclaw_rl.config import load_config, require_available
from openclaw_rl.config.plan import plan_launch
from tests.pages import DOCS, ROOT
from tests.server import Server
from tests.tiny import build_tiny_model
from tests.wire.asking import text_of

FOLDER = ROOT / "configs" / "layouts"
GPUS = {"laptop": 0, "no-gpu": 0, "one-gpu": 1, "eight-gpus": 8, "eight-gpus-published": 8, "several-nodes": 1}
"""Of the machine that each is for."""
OURS = [name for name in GPUS if name != "eight-gpus-published"]
ELSEWHERE = {"several-nodes": ("engine.urls=[]", "engine.type=scripted", "engine.adapter_dir=null")}
"""What runs on other machines, or needs a program that is not here, is left out of the start."""


def test_every_layout_has_a_file_and_is_named_on_the_page() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(GPUS)
    named = set(re.findall(r"configs/layouts/([\w-]+)\.yaml", (DOCS / "scaling.md").read_text()))
    assert named == set(GPUS)


@pytest.mark.parametrize("name", OURS)
def test_ours_start_on_the_machine_that_they_are_for(name: str) -> None:
    config = load_config([FOLDER / f"{name}.yaml"], env={}).config
    require_available(config)
    plan = plan_launch(config, GPUS[name])
    assert plan.obstacles == ()
    gpus = {process.name: process.gpus for process in plan.processes}
    assert gpus["engine"] == config.engine.gpu_ids
    assert not (len(gpus["engine"]) > 1 and set(gpus["engine"]) & set(gpus["trainer"])), "only one GPU is shared"


def test_the_published_split_is_dealt_out_as_the_launchers_do() -> None:
    config = load_config([FOLDER / "eight-gpus-published.yaml"], env={}).config
    plan = plan_launch(config, 8)
    gpus = {process.name: process.gpus for process in plan.processes}
    assert gpus == {
        "gateway, store, loops": (),
        "trainer": (0, 1, 2, 3),
        "engine": (4, 5),
        "judge": (6,),
        "teacher": (7,),
    }


@pytest.mark.parametrize("name", ["one-gpu", "eight-gpus"])
def test_a_machine_that_is_too_small_says_so(name: str) -> None:
    plan = plan_launch(load_config([FOLDER / f"{name}.yaml"], env={}).config, 0)
    assert any("and this machine has none" in line for line in plan.obstacles)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize("name", OURS)
def test_a_layout_starts_here_with_what_its_plan_proposes(name: str, model: Path, tmp_path: Path) -> None:
    """Without a GPU: what the plan for none proposes, and a tiny model; every other setting is the file's own."""
    config = load_config([FOLDER / f"{name}.yaml"], env={}).config
    proposed = plan_launch(config, 0).proposal
    engine = ELSEWHERE.get(name, ("engine.type=embedded",))
    file = ("--config", str(FOLDER / f"{name}.yaml"))
    own = (*file, *proposed, *engine, f"model.name={model}", "gateway.host=127.0.0.1")
    with Server(tmp_path / "data", *own) as server:
        assert text_of(server.chat("hello", max_tokens=4)) is not None
        resolved = (server.data_dir / "run" / "config.yaml").read_text()
    assert f"max_active: {config.engine.max_active}" in resolved
    assert json.dumps(config.training.max_line_share) in resolved
