"""What this release does not do is refused at start: the setting, its variable, the reason and the remedy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from openclaw_rl.config import ALIASES, Config, load_config, require_available
from openclaw_rl.config.keys import LEAVES, limit_of
from openclaw_rl.errors import ConfigError

LIMITED = [key for key in LEAVES if limit_of(key)]
TOO_MUCH = {
    "engine.colocate": "true",
    "training.teacher_source": "engine",
    "rollout.tools_config": "/tools.json",
}
"""What people ask for; of all others it is two, or a text."""


def refusal(overrides: list[str] = [], env: dict[str, str] = {}, *, learn: bool = True) -> str:  # noqa: B006
    with pytest.raises(ConfigError) as error:
        require_available(load_config(env=env, overrides=overrides).config, learn=learn)
    return str(error.value)


def test_the_defaults_and_the_seeds_own_values_start() -> None:
    require_available(Config())
    one = dict.fromkeys(("NUM_GPUS", "ACTOR_GPUS", "ROLLOUT_GPUS", "PRM_GPUS", "PRM_TEACHER_GPUS", "NNODES"), "1")
    machines = {**one, "MASTER_ADDR": "localhost", "MASTER_PORT": "6000", "NODE_RANK": "0", "GPUS_PER_NODE": "1"}
    require_available(load_config(env=machines).config)
    require_available(load_config(env={"OPENCLAW_COMBINE_OPD_TEACHER_SOURCE": "megatron"}).config)


@pytest.mark.parametrize("key", LIMITED)
def test_more_than_this_release_does_is_refused_with_the_remedy(key: str) -> None:
    limit = limit_of(key)
    assert limit is not None
    message = refusal([f"{key}={TOO_MUCH.get(key, '2')}"])
    assert message.startswith(key)
    assert limit.why in message
    assert message.endswith(limit.advice)
    assert "\n" not in message
    for alias in ALIASES:
        assert alias.key != key or alias.variable in message


def test_a_refusal_is_one_plain_sentence() -> None:
    assert refusal(env={"NNODES": "2"}) == (
        "training.nnodes (variable NNODES) = 2: training.backend=local trains in one process; set "
        "training.backend=fsdp to train on several GPUs or machines with FSDP2, or leave it at 1"
    )
    assert refusal(env={"NUM_GPUS": "8"}).endswith("leave it unset, or at 1")
    assert refusal(["training.master_addr=10.0.0.7"]).endswith("set it to localhost, 127.0.0.1 or ::1")


def test_a_service_serves_what_it_trains() -> None:
    keyed = {"TINKER_API_KEY": "tml-mine"}
    require_available(load_config(env=keyed).config)
    config = load_config(env=keyed, overrides=["training.backend=tinker"]).config
    assert (config.engine.type, config.training.logprob_temperature) == ("tinker", 1.0)
    require_available(config)
    assert "tml-mine" not in repr(config)
    named = ["training.backend=tinker", "engine.served_model=Qwen/Qwen3-8B-there"]
    require_available(load_config(env=keyed, overrides=named).config)
    assert "has no use for it" in refusal(["engine.served_model=Qwen/Qwen3-8B-there"])
    for split in (["engine.type=tinker"], ["training.backend=tinker", "engine.type=vllm"]):
        assert "tinker serves what it trained itself; set both to tinker, or neither" in refusal(split, keyed)
    assert refusal(["training.backend=tinker"]).startswith(
        "training.backend = tinker: it needs a key; set TINKER_API_KEY"
    )
    keyed = {"FIREWORKS_API_KEY": "fw_mine"}
    config = load_config(env=keyed, overrides=["training.backend=fireworks"]).config
    assert (config.engine.type, config.training.logprob_temperature) == ("fireworks", 1.0)
    require_available(config)
    assert "fw_mine" not in repr(config)
    assert "fireworks serves what it trained itself" in refusal(["engine.type=fireworks"], keyed)
    assert refusal(["training.backend=fireworks"]).startswith(
        "training.backend = fireworks: it needs a key; set FIREWORKS_API_KEY"
    )
    keyed = {"TINKER_API_KEY": "tml-mine"}
    assert "without prices" in refusal(["training.backend=tinker", "training.cloud.daily_budget=5"], keyed)


def test_every_refusal_is_told_at_once() -> None:
    assert len(refusal(env={"NNODES": "2", "NODE_RANK": "1", "ROLLOUT_GPUS": "2"}).splitlines()) == 3


def test_serving_alone_does_not_mind_the_trainers_settings() -> None:
    config = load_config(env={"ACTOR_GPUS": "2", "TASK_TYPE": "bash_commands"}).config
    require_available(config, learn=False)
    for variable in ("NNODES", "NUM_GPUS", "GPUS_PER_NODE", "ROLLOUT_GPUS"):
        assert f"(variable {variable}) = 2" in refusal(env={variable: "2"}, learn=False)
    assert refusal(["engine.num_gpus=2"], learn=False).startswith("engine.num_gpus (variable ROLLOUT_GPUS) = 2")


def test_one_gpu_serves_and_one_trains() -> None:
    require_available(load_config(env={}, overrides=["engine.gpu_ids=0", "training.gpu_ids=1"]).config)
    assert refusal(["training.gpu_ids=2,3,4,5"]) == (
        "training.gpu_ids = 2,3,4,5: training.backend=local trains on one GPU; set training.backend=fsdp to train on "
        "all of them with FSDP2, or name one, such as 2"
    )
    assert "or start an engine on each with engine.replicas=2" in refusal(["engine.gpu_ids=0,1"], learn=False)
    require_available(load_config(env={}, overrides=["engine.gpu_ids=0,1", "engine.replicas=2"]).config)


@pytest.mark.parametrize("variable", ["REF_LOAD", "PRM_TEACHER_LOAD"])
def test_a_checkpoint_that_is_no_hugging_face_folder_is_refused(variable: str, tmp_path: Path) -> None:
    message = refusal(env={variable: str(tmp_path)})
    assert f"(variable {variable}) = {tmp_path}: there is no config.json in it" in message
    (tmp_path / "config.json").write_text("{}")
    require_available(load_config(env={variable: str(tmp_path)}).config)


@pytest.mark.parametrize(
    ("key", "other", "only"),
    [
        ("rollout.collection_mode", "sync", "async"),
        ("rollout.trajectory_format", "single_turn", "multi_turn"),
        ("rollout.reward_computation.type", "outcome", "next_state_feedback"),
        ("rollout.reward_computation.aggregation", "mean", "majority"),
    ],
)
def test_a_key_with_one_legal_value_says_so(key: str, other: str, only: str) -> None:
    assert load_config(env={}, overrides=[f"{key}={only}"]).config == Config()
    with pytest.raises(ConfigError, match=rf"{key} = '{other}' \(command line\): {only} is the only value: "):
        load_config(env={}, overrides=[f"{key}={other}"])


def test_a_role_is_on_the_main_line_or_beside_it() -> None:
    with pytest.raises(ConfigError, match="rollout.message_classification: tool is in main_line and in side; keep it"):
        load_config(env={}, overrides=["rollout.message_classification.side=system,tool"])


@pytest.mark.parametrize(
    ("overrides", "names", "remedy"),
    [
        (["engine.port=8000"], "engine.port = 8000", "set engine.type to vllm or sglang, or remove it"),
        (["engine.served_model=m"], "engine.served_model = m", "or remove it"),
        (["engine.api_key=k"], "engine.api_key = ***", "or remove it"),
        (["engine.adapter_dir=/a"], "engine.adapter_dir = /a", "or remove it"),
        (["engine.type=vllm", "engine.port=8000", "engine.url=http://a"], "engine.port = 8000", "give one of both"),
        (["engine.type=vllm", "engine.port=8000", "engine.replicas=2"], "engine.port = 8000", "takes a free one"),
        (["engine.type=vllm", "engine.api_key=k"], "engine.api_key", "name that with engine.url"),
        (["evaluation.judge_gpu_ids=1"], "evaluation.judge_gpu_ids", "name that, or remove them"),
        (
            ["evaluation.judge_gpu_ids=1,2", "evaluation.judge_path=/prm"],
            "evaluation.judge_gpu_ids = 1,2",
            "name one, such as 1",
        ),
    ],
)
def test_a_setting_that_nothing_follows_is_refused(overrides: list[str], names: str, remedy: str) -> None:
    message = refusal(overrides)
    assert message.startswith(names)
    assert remedy in message
    assert "\n" not in message


def test_what_names_a_server_is_taken_with_one() -> None:
    place = ["engine.api_key=k", "engine.served_model=m", "engine.adapter_dir=/a"]
    require_available(load_config(env={}, overrides=["engine.type=vllm", "engine.url=http://a", *place]).config)
    require_available(load_config(env={}, overrides=["engine.type=sglang", "engine.port=8000"]).config)
    judges = ["evaluation.judge_path=/prm", "evaluation.judge_gpu_ids=1,2"]
    require_available(load_config(env={}, overrides=["engine.type=vllm", *judges]).config)


FSDP = "training.backend=fsdp"


@pytest.mark.parametrize(
    "settings",
    [
        ["training.gpus_per_node=8"],
        ["training.gpu_ids=1,2", "training.actor_gpus=2"],
        ["training.gpus_per_node=2", "training.device=cpu", "training.num_gpus=1"],
        ["training.ranks=joined", "training.nnodes=2", "training.gpus_per_node=8", "training.master_addr=10.0.0.7"],
    ],
)
def test_fsdp_takes_what_one_process_refuses(settings: list[str]) -> None:
    require_available(load_config(env={}, overrides=[FSDP, *settings]).config)
    assert "training.backend=fsdp" in refusal(settings)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            [],
            r"how many processes train .*; set training\.gpus_per_node \(variable GPUS_PER_NODE\), or name their GPUs",
        ),
        (["training.gpus_per_node=4", "training.gpu_ids=0,1"], "gpus_per_node=4 and training.gpu_ids=2 differ"),
        (
            ["training.gpus_per_node=4", "training.num_gpus=3"],
            "NUM_GPUS.* = 3: 4 processes train.*need 4 GPUs; raise it",
        ),
        (["training.gpu_ids=0,1", "training.device=cpu"], "set training.gpus_per_node instead"),
        (
            ["training.gpus_per_node=2", "training.nnodes=2"],
            "NNODES.* = 2: .*set training.ranks=joined.*worker trainer",
        ),
        (
            ["training.gpus_per_node=2", "training.teacher=path", "training.teacher_url=http://teacher/v1"],
            r"teacher_url.*name its folder with training.teacher_path",
        ),
        (
            ["training.gpus_per_node=2", "training.node_rank=1"],
            r"NODE_RANK.* = 1: .*set training\.nnodes.*leave it at 0",
        ),
        (["training.gpus_per_node=2", "training.master_addr=10.0.0.7"], r"one machine; set training\.nnodes"),
        (["training.gpus_per_node=2", "training.listen=10.0.0.7:1"], r"set training\.ranks=joined, or remove it"),
    ],
)
def test_what_fsdp_cannot_be_started_with_is_one_sentence(settings: list[str], told: str) -> None:
    assert re.search(told, message := refusal([FSDP, *settings]))
    assert "\n" not in message
