"""What a turn's ids, and versions, belong to; and what the loops are put together from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from openclaw_rl.assembly import make_train_loop, model_id_of
from openclaw_rl.config import ModelConfig, load_config
from openclaw_rl.model.files import resolve_model
from openclaw_rl.protocols import Renderer
from openclaw_rl.types import Candidate, Step, Version
from tests.tiny import build_tiny_model
from tests.unit.train.made import sample


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


def test_as_many_exercises_as_are_configured(renderer: Renderer, tmp_path: Path) -> None:
    """The loop beside serving practises what two conversations wish; the reference preset practises nothing."""
    hint = Candidate(hint="Answer in one short sentence.", num_shared=4, suffix_ids=(5, 6))
    samples = [sample(index, session=f"s-{index}", candidates=(hint,)) for index in (0, 1)]
    step = Step(line="ann", number=1, state="planned", planned_at=0.0, seed=0, parent=0, sample_ids=("a", "b"))

    async def release(_: Version) -> None: ...

    def num_exercises(*settings: str) -> int:
        config = load_config(overrides=(f"store.data_dir={tmp_path}", *settings), env={}).config
        unused: Any = None
        return len(make_train_loop(config, unused, unused, renderer, release=release)._practise(step, samples))

    assert num_exercises("training.exercises=3") == 3
    assert num_exercises("training.preset=reference") == 0
