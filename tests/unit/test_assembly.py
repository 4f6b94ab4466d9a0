"""What a turn's ids, and versions, belong to."""

from __future__ import annotations

from pathlib import Path

from openclaw_rl.assembly import model_id_of
from openclaw_rl.config import ModelConfig
from openclaw_rl.model.files import resolve_model
from tests.tiny import build_tiny_model


def test_two_checkpoints_under_one_name_are_two_models(tmp_path: Path) -> None:
    names = []
    for name in ("one", "two"):
        folder = build_tiny_model(tmp_path / name)
        model = resolve_model(ModelConfig(name="mine", checkpoint_path=folder))
        names.append(model_id_of(model, "embedded", folder))
        assert model_id_of(model, "embedded").startswith("mine#")
        assert model_id_of(model, "scripted", folder) == f"scripted:{names[-1]}"
    digests = {name.rpartition("#")[2] for name in names}
    assert (len(set(names)), len(digests)) == (2, 1), "the same tokenizer, other weights"
