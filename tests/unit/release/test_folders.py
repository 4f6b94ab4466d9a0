"""A version leaves as a PEFT folder that says what it learned from and quotes nothing, and such a folder comes in."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import save_file

from openclaw_rl.model.folder import folder_sha256
from openclaw_rl.release.folders import BadFolder, check_adapter, export_version, model_card
from openclaw_rl.train.local import LocalWeights
from openclaw_rl.types import IMPORTED, Step, Version, WeightsRef

CONFIG = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"]}


def adapter(folder: Path, config: Any = CONFIG, name: str = "base.q_proj.lora_A.weight") -> Path:
    import numpy

    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps(config))
    save_file({name: numpy.zeros((2, 4), dtype=numpy.float32)}, folder / "adapter_model.safetensors")
    return folder


def version(folder: Path, **changes: Any) -> Version:
    values: dict[str, Any] = {
        "line": "local",
        "number": 2,
        "parent": 1,
        "state": "live",
        "created_at": 86_400.0,
        "weights": WeightsRef.of_folder(folder, folder_sha256(folder)),
        "gate": {
            "measures": [
                {"name": "kl", "candidate": 0.25, "parent": None, "base": None, "objection": "quoted words"},
                {"name": "capability", "candidate": 0.56, "parent": 0.555, "base": 0.5511111, "limit": ""},
            ],
            "reason": "quoted words",
        },
    }
    return Version(**{**values, **changes})


def step(number: int, *samples: str, reason: str = "", **metrics: float) -> Step:
    return Step(
        line="local",
        number=number,
        state="done",
        planned_at=number * 86_400.0,
        seed=0,
        parent=number - 1,
        sample_ids=samples,
        metrics={name.replace("_", "/"): value for name, value in metrics.items()},
        reason=reason,
    )


def test_the_folder_is_whole_and_says_what_it_learned_from(tmp_path: Path) -> None:
    made = version(adapter(tmp_path / "v2" / "weights"))
    first = replace(made, number=1, parent=0, state="retired")
    steps = {1: step(1, "s-private.0", reward_mean=1.0), 2: step(2, "s-private.1", "s-private.2", reward_mean=-1.0)}
    card = model_card(made, [first, made], steps, base_model="tiny")
    target = tmp_path / "out" / "folder"
    export_version(made, target, base_model="tiny", card=card)
    names = sorted(path.name for path in target.iterdir())
    assert names == ["README.md", "adapter_config.json", "adapter_model.safetensors"]
    config = json.loads((target / "adapter_config.json").read_text())
    assert config == {**CONFIG, "base_model_name_or_path": "tiny"}
    assert list((tmp_path / "out").iterdir()) == [target], "nothing half done lies beside it"
    told = (target / "README.md").read_text()
    assert "3 samples of reactions to answers, in 2 steps" in told
    assert "1970-01-02 and 1970-01-03" in told
    assert ('base_model: "tiny"' in told, "+0.000" in told) == (True, True)
    assert "| kl | 0.25 | – | – |\n| capability | 0.56 | 0.555 | 0.5511 |\n" in told
    assert ("private" in told, "quoted" in told) == (False, False)
    check_adapter(target)


def test_weights_that_came_from_elsewhere_are_named(tmp_path: Path) -> None:
    made = version(adapter(tmp_path / "w"))
    first = replace(made, number=1, parent=0, state="retired")
    told = model_card(made, [first, made], {1: step(1, reason=IMPORTED), 2: step(2, "s.0")}, base_model="tiny")
    assert ("the weights of v1" in told, "1 samples" in told) == (True, True)


def test_nothing_is_overwritten_and_nothing_else_exported(tmp_path: Path) -> None:
    folder = adapter(tmp_path / "w")
    made = version(folder)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    with pytest.raises(BadFolder, match="not empty"):
        export_version(made, tmp_path / "full", base_model="m", card="")
    (tmp_path / "empty").mkdir()
    export_version(made, tmp_path / "empty", base_model="m", card="")
    with pytest.raises(BadFolder, match="are gone"):
        export_version(replace(made, weights=None), tmp_path / "new", base_model="m", card="")
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(BadFolder, match="have changed"):
        export_version(made, tmp_path / "new", base_model="m", card="")
    (folder / "adapter_config.json").unlink()
    with pytest.raises(BadFolder, match="no adapter"):
        export_version(made, tmp_path / "new", base_model="m", card="")
    assert not (tmp_path / "new").exists()


def test_a_place_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    made = version(adapter(tmp_path / "w"))
    (tmp_path / "file").write_text("")
    with pytest.raises(BadFolder, match="cannot be written"):
        export_version(made, tmp_path / "file" / "new", base_model="m", card="")


@pytest.mark.parametrize(
    ("config", "name", "why"),
    [
        ({**CONFIG, "peft_type": "IA3"}, "a.lora_A.weight", "peft_type 'IA3'"),
        ({**CONFIG, "r": 0}, "a.lora_A.weight", "rank r = 0"),
        ([], "a.lora_A.weight", "no JSON object"),
        (CONFIG, "model.embed_tokens.weight", "holds model.embed_tokens.weight"),
    ],
)
def test_what_is_no_adapter_stays_outside(tmp_path: Path, config: Any, name: str, why: str) -> None:
    with pytest.raises(BadFolder, match=why):
        check_adapter(adapter(tmp_path / "w", config, name))


def test_what_no_gate_has_seen_has_no_measures_on_its_card(tmp_path: Path) -> None:
    made = version(adapter(tmp_path / "w"), gate=None)
    assert model_card(made, [made], {}, base_model="tiny").endswith("it answered anybody:\n\nnothing.\n")


def header(text: bytes) -> bytes:
    return len(text).to_bytes(8, "little") + text


@pytest.mark.parametrize(
    "content", [b"", b"\xff" * 64, header(b"nope"), header(b"null"), header(b"[1, 2]"), header(b"[" * 200_000)]
)
def test_a_damaged_file_stays_outside(tmp_path: Path, content: bytes) -> None:
    folder = adapter(tmp_path / "w")
    (folder / "adapter_model.safetensors").write_bytes(content)
    with pytest.raises(BadFolder, match="no safetensors file"):
        check_adapter(folder)
    with pytest.raises(BadFolder, match="name a PEFT folder"):
        check_adapter(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_what_is_no_file_is_not_read(tmp_path: Path, name: str) -> None:
    folder = adapter(tmp_path / "w")
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(BadFolder, match="is no file"):
        check_adapter(folder)


def test_what_comes_in_lies_at_its_number_without_a_trainers_state(tmp_path: Path) -> None:
    folder, versions = adapter(tmp_path / "w"), tmp_path / "versions"
    (folder / "optimiser.bin").write_bytes(b"stays outside")
    made = LocalWeights(versions).adopt(folder, "ann")(7)
    assert made.folder == versions / "v7.ann" / "weights"
    assert made.sha256 == folder_sha256(made.folder) == folder_sha256(folder)
    assert sorted(one.name for one in versions.rglob("*")) == [
        *("adapter_config.json", "adapter_model.safetensors", "v7.ann", "weights")
    ]


def test_only_the_owner_reaches_what_came_in(tmp_path: Path) -> None:
    versions = tmp_path / "versions"
    before = os.umask(0o022)
    try:
        made = LocalWeights(versions).adopt(adapter(tmp_path / "w"), "ann")(7)
    finally:
        os.umask(before)
    assert [one.stat().st_mode & 0o777 for one in (versions, versions / "v7.ann", made.folder) if one] == [0o700] * 3
