"""Settings that choose others: what a person names is what they get, and whoever says it outright is stronger."""

from __future__ import annotations

from pathlib import Path

import pytest

from openclaw_rl.config import LoadedConfig, load_config
from openclaw_rl.config.keys import LEAVES
from openclaw_rl.config.presets import CHOICES
from openclaw_rl.errors import ConfigError

DATA = Path(__file__).parents[2] / "data"


def loaded(*overrides: str, env: dict[str, str] | None = None, file: Path | None = None) -> LoadedConfig:
    return load_config([file] if file else [], env or {}, overrides)


def test_every_choice_names_settings() -> None:
    assert {key for choice in CHOICES for key in (choice.key, choice.target)} <= set(LEAVES)


def test_the_seeds_training_file_chooses_what_it_names() -> None:
    config = loaded(file=DATA / "seed_training_config.yaml").config
    assert (config.evaluation.judge, config.evaluation.num_judges) == (("auto",), 3)
    assert config.training.hint_extraction_model == "gpt-4"
    assert (config.training.advantage, config.training.gae_lambda) == ("session_gae", 0.95)
    assert (config.training.critic, config.training.value_clip, config.training.value_clip_ratio) == (True, True, 0.2)


@pytest.mark.parametrize(
    ("given", "chosen", "outright"),
    [
        ("evaluation.judge_function=r.py:reward", "function", "function"),
        ("evaluation.judge_path=/prm", "auto", "model"),
        ("evaluation.judge_model=gpt-4", "auto", "endpoint"),
        ("evaluation.judge_url=http://localhost:1/v1", "auto", "endpoint"),
        ("training.hint_extraction_model=gpt-4", "auto", "endpoint"),
    ],
)
def test_a_judges_settings_choose_it(given: str, chosen: str, outright: str) -> None:
    found = loaded(given)
    assert found.config.evaluation.judge == (chosen,)
    assert found.sources["evaluation.judge"] == f"chosen by {given.partition('=')[0]}"
    assert loaded(given, f"evaluation.judge={outright}").config.evaluation.judge == (outright,)
    with pytest.raises(ConfigError, match="needs another evaluation.judge than rules"):
        loaded(given, "evaluation.judge=rules")
    key, _, value = given.partition("=")
    weaker = {f"OPENCLAW_RL__{key.replace('.', '__').upper()}": value}
    assert loaded("evaluation.judge=rules", env=weaker).config.evaluation.judge == ("rules",)
    in_a_chain = loaded(given, env={"OPENCLAW_RL__EVALUATION__JUDGE": f"rules,{outright}"})
    assert in_a_chain.config.evaluation.judge == ("rules", outright)


def test_the_checkpoint_of_a_reward_function_is_no_judge_of_its_own() -> None:
    found = loaded("evaluation.judge_function=r.py:Model", env={"PRM_MODEL_PATH": "/prm"})
    assert found.config.evaluation.judge == ("function",)
    assert loaded("evaluation.judge_function=r.py:M", "evaluation.judge_path=/p").config.evaluation.judge == (
        "function",
    )


def test_a_function_beside_a_model_of_one_source_is_an_error_that_names_both() -> None:
    with pytest.raises(ConfigError, match=r"judge_function and evaluation.judge_model choose different"):
        loaded("evaluation.judge_model=gpt-4", "evaluation.judge_function=r.py:f")


def test_a_stronger_source_beats_what_a_file_says_outright(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("training: {teacher: current}\nevaluation: {judge: self}\n")
    found = loaded(env={"PRM_TEACHER_HF": "/teacher", "PRM_MODEL_PATH": "/prm"}, file=file).config
    assert (found.training.teacher, found.training.teacher_path) == ("path", Path("/teacher"))
    assert found.evaluation.judge == ("auto",)
    outright = loaded("training.teacher=ema", env={"PRM_TEACHER_HF": "/teacher"})
    assert outright.config.training.teacher == "ema"


def test_value_clip_switches_the_critic_on() -> None:
    assert loaded(env={"VALUE_CLIP": "true"}).config.training.critic
    assert not loaded(env={"VALUE_CLIP": "false"}).config.training.critic
    assert loaded("training.value_coef=0.1").config.training.critic


def test_gae_is_chosen_over_the_preset() -> None:
    assert loaded("training.preset=reference", "training.gae_lambda=0").config.training.advantage == "session_gae"


@pytest.mark.parametrize(
    ("given", "env", "named"),
    [
        (["training.critic=false"], {"VALUE_CLIP": "true"}, ("training.value_clip = true", "training.critic")),
        (["training.critic=false", "training.value_clip_ratio=0.3"], {}, ("value_clip_ratio = 0.3", "training.critic")),
        (
            ["training.gae_lambda=0.9", "training.advantage=raw"],
            {},
            ("training.gae_lambda = 0.9", "advantage than raw"),
        ),
        (
            ["evaluation.judge=rules", "evaluation.judge_model=gpt-4"],
            {},
            ("evaluation.judge_model = gpt-4", "evaluation.judge than rules"),
        ),
        (
            ["training.teacher=current", "training.teacher_path=/Teacher"],
            {},
            ("training.teacher_path = /Teacher", "training.teacher than current"),
        ),
    ],
)
def test_a_contradiction_names_both_settings(given: list[str], env: dict[str, str], named: tuple[str, str]) -> None:
    with pytest.raises(ConfigError) as error:
        loaded(*given, env=env)
    assert all(name in str(error.value) for name in named)
    assert "\n" not in str(error.value)


def test_a_whole_tree_that_was_written_down_is_read_again() -> None:
    same = loaded(
        "training.critic=false", "training.value_coef=0.5", "training.gae_lambda=0.95", "training.advantage=raw"
    )
    assert (same.config.training.critic, same.config.training.advantage) == (False, "raw")


def test_a_key_of_weights_and_biases_tracks_online() -> None:
    assert loaded(env={"WANDB_API_KEY": "wb"}).config.tracking.wandb_mode == "online"
    assert loaded("tracking.wandb_mode=offline", env={"WANDB_API_KEY": "wb"}).config.tracking.wandb_mode == "offline"
    both = loaded(env={"WANDB_API_KEY": "wb", "OPENCLAW_RL__TRACKING__WANDB_MODE": "offline"})
    assert both.config.tracking.wandb_mode == "offline"


def test_weights_apart_from_the_tokenizer() -> None:
    model = loaded(env={"HF_CKPT": "/hf", "REF_LOAD": "/weights"}).config.model
    assert (model.checkpoint_path, model.tokenizer_path) == (Path("/weights"), Path("/hf"))
    model = loaded(env={"REF_LOAD": "/weights", "TOKENIZER_PATH": "/t"}).config.model
    assert (model.checkpoint_path, model.tokenizer_path) == (Path("/weights"), Path("/t"))
    teacher = loaded(env={"PRM_TEACHER_LOAD": "/teacher"}).config.training
    assert (teacher.teacher, teacher.teacher_path) == ("path", Path("/teacher"))
