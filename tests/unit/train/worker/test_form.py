"""A line keeps the form it was begun with: other settings are refused with the remedy, not ignored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.errors import TrainError
from openclaw_rl.model.adapter import CONFIG_FILE, TARGETS
from openclaw_rl.train.worker.form import check_form
from openclaw_rl.train.worker.settings import TrainSettings
from tests.factories.orders import order, settings
from tests.factories.torch_trainers import new_trainer
from tests.tiny import build_tiny_model


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.mark.parametrize(
    ("begun", "now", "told"),
    [
        ({}, {"lora_rank": 8}, r"v1 was made with training.lora_rank=4, not 8; set it so to go on from v1, or begin"),
        ({}, {"lora_alpha": 8.0}, r"training.lora_alpha=32, not 8;"),
        (
            {"lora_target_modules": ["v_proj", "q_proj"]},
            {"lora_rank": 2},
            r"lora_rank=4, not 2 and training.lora_target_modules=q_proj,v_proj, not down_proj,gate_proj,k_proj,o_proj",
        ),
        ({}, {"use_lora": False}, r"v1 is an adapter, and training.use_lora is false; set it to true to go on from v1"),
        ({"use_lora": False}, {}, r"v1 is a whole model, and training.use_lora is true; .* `openclaw-rl rollback 0`"),
    ],
)
def test_another_form_is_refused_with_the_remedy(
    tiny: Path, tmp_path: Path, begun: dict[str, Any], now: dict[str, Any], told: str
) -> None:
    assert new_trainer(tiny).step(*order(tmp_path, 1, **begun)).state == "done"
    parent = str(tmp_path / "v1")
    with pytest.raises(TrainError, match=told):
        new_trainer(tiny).step(*order(tmp_path, 2, parent=parent, **now))
    assert new_trainer(tiny).step(*order(tmp_path, 2, parent=parent, **begun)).state == "done"


def check(folder: Path, config: dict[str, Any], *, all_linear: tuple[str, ...] = TARGETS, **now: Any) -> None:
    (folder / CONFIG_FILE).write_text(json.dumps({"r": 4, "lora_alpha": 32, **config}))
    check_form(folder, TrainSettings.from_training(settings(**now)), all_linear=all_linear, name="v1")


def test_layers_are_compared_as_far_as_they_are_known(tmp_path: Path) -> None:
    check(tmp_path, {"target_modules": list(TARGETS)})
    check(tmp_path, {"target_modules": "all-linear"})
    check(
        tmp_path, {"target_modules": ["model.layers.0.v_proj", "model.layers.1.v_proj"]}, lora_target_modules=["v_proj"]
    )
    check(tmp_path, {"target_modules": ["c_attn"]}, all_linear=("c_attn",))
    with pytest.raises(TrainError, match="=c_attn, not c_fc"):
        check(tmp_path, {"target_modules": ["c_attn"]}, all_linear=("c_attn",), lora_target_modules=["c_fc"])


def test_a_file_that_says_nothing_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        TrainError, match=r"adapter_config.json cannot be read \(KeyError\('target_modules'\)\); roll back"
    ):
        check(tmp_path, {})


def test_what_is_gone_is_left_to_who_loads_it(tmp_path: Path) -> None:
    check_form(tmp_path / "gone", TrainSettings.from_training(settings()), all_linear=TARGETS, name="v1")
