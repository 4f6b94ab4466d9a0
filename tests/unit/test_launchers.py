"""launchers/: each script of the seeds runs a command of ours; what its flags say is seen in the resolved settings."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import SecretStr

from openclaw_combine.launch import FLAGS, SCRIPTS, translate
from openclaw_rl.config import Config, LoadedConfig, load_config, require_available
from openclaw_rl.config.keys import LEAVES
from openclaw_rl.errors import ConfigError

FOLDER = Path(__file__).parents[2] / "launchers"
REFUSED = [name for name, script in SCRIPTS.items() if script.refused]


def run(script: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    program = ["bash"] if script.endswith(".sh") else [sys.executable]
    env = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "PYTHON": sys.executable, **variables}
    return subprocess.run(
        [*program, str(FOLDER / script), *arguments], env=env, capture_output=True, text=True, check=False
    )


def resolved(command: list[str]) -> LoadedConfig:
    """The settings that a command of ours starts with."""
    files = [Path(command[at + 1]) for at, word in enumerate(command) if word == "--config"]
    return load_config(files, {}, [word for word in command if "." in word and "=" in word])


def config_of(script: str, *arguments: str) -> Config:
    return resolved(translate(script, arguments)).config


def test_every_script_of_the_seeds_is_there_and_short() -> None:
    found = {path.name: path for path in FOLDER.iterdir() if path.name not in ("launch.sh", "launch.py", "__pycache__")}
    assert set(found) == set(SCRIPTS)
    assert all(len(path.read_text().splitlines()) <= 10 for path in found.values())
    assert set(FLAGS.values()) <= set(LEAVES)


@pytest.mark.parametrize("script", [name for name in SCRIPTS if name not in REFUSED])
def test_a_script_says_which_command_it_runs(script: str) -> None:
    arguments = ["--output-dir", "/out"] if script == "collect_rollouts.py" else []
    done = run(script, *arguments, "--dry-run")
    assert done.returncode == 0, done.stderr
    name, *command = shlex.split(done.stdout)
    assert name == "openclaw-rl"
    resolved(command)
    assert f"{script} runs: openclaw-rl" in run(script, "--help").stdout


@pytest.mark.parametrize("script", REFUSED)
@pytest.mark.parametrize("arguments", [("--model", "qwen3.5-vl"), ("--gpus", "8", "--dry-run")])
def test_gui_agents_are_refused_with_a_sentence(script: str, arguments: tuple[str, ...]) -> None:
    done = run(script, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert f"{script}: GUI agents come later" in done.stderr
    assert "openclaw-rl env list" in done.stderr


def test_tinker_is_deployed_to() -> None:
    config = config_of("deploy_to_tinker.sh", "--model", "Qwen/Qwen3-8B", "--method", "combine")
    assert (config.training.backend, config.engine.type, config.training.method) == ("tinker", "tinker", "combine")
    assert config.training.logprob_temperature == 1.0, "a service says no other log-probs"
    with pytest.raises(ConfigError, match=r"needs a key; set TINKER_API_KEY"):
        require_available(config)
    require_available(
        config.model_copy(
            update={"training": config.training.model_copy(update={"tinker_api_key": SecretStr("tml-mine")})}
        )
    )


def test_fireworks_is_deployed_to() -> None:
    done = run("deploy_to_fireworks.sh", "--gpus", "8", "--method", "combine", "--dry-run")
    assert (done.returncode, done.stdout) == (
        0,
        "openclaw-rl up training.backend=fireworks training.method=combine\n",
    )
    assert "--gpus 8 is left out: the service chooses its GPUs" in done.stderr
    config = config_of("deploy_to_fireworks.sh", "--gpus", "8", "--method", "combine")
    assert (config.training.backend, config.engine.type, config.training.method) == (
        "fireworks",
        "fireworks",
        "combine",
    )
    with pytest.raises(ConfigError, match=r"needs a key; set FIREWORKS_API_KEY"):
        require_available(config)


def test_a_python_script_finds_the_projects_own_python(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "launchers", ignore=shutil.ignore_patterns("__pycache__"))
    for package in ("openclaw_rl", "openclaw_combine"):
        (tmp_path / package).symlink_to(FOLDER.parent / package)
    script = str(tmp_path / "launchers" / "serve_model.py")

    def start() -> subprocess.CompletedProcess[str]:
        bare = [sys.executable, "-S", script, "--dry-run"]  # without anything that was installed
        return subprocess.run(bare, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False)

    done = start()
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "serve_model.py: this Python has no module " in done.stderr
    assert "`make setup`" in done.stderr
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$@"\n')
    python.chmod(0o700)
    assert start().stdout == f"{script} --dry-run\n"


def test_the_methods_of_the_seeds() -> None:
    assert config_of("run_binary_rl.sh").training.method == "binary"
    assert config_of("run_opd_training.sh").training.method == "opd"
    combine, lora = config_of("run_combine_training.sh"), config_of("run_combine_training.sh", "--lora")
    assert (combine.training.method, combine.training.use_lora) == ("combine", False)
    assert (lora.training.use_lora, lora.training.lora_dropout) == (True, 0.1)
    assert config_of("run_binary_rl.sh", "--lora").training.use_lora
    published = config_of("run_qwen3_4b_openclaw_topk_select.sh", "--eps-clip", "0.1", "--eps-clip-high", "0.3")
    assert (published.training.ppo_clip_ratio, published.training.ppo_clip_ratio_high) == (0.1, 0.3)
    assert config_of("run_qwen3_4b_openclaw_combine.sh").training.distillation == "token"


def test_the_flags_of_the_binary_script() -> None:
    rollout = "--rollout-function-path rollout_binary.py --num-rollout-workers 4 --rollout-batch-size 16 --max-turns 10"
    reward = "--custom-rm-path process_reward_model.py --rm-checkpoint /prm --reward-aggregation majority"
    optimiser = "--lr 2e-6 --lr-warmup-samples 100 --clip-grad 0.5 --ppo-clip-ratio 0.1 --num-epochs 2"
    config = config_of("run_binary_rl.sh", *f"{rollout} {reward} {optimiser}".split())
    require_available(config)
    training = config.training
    assert (training.batch_size, training.learning_rate, training.warmup_steps) == (16, 2e-6, 7)
    assert (training.clip_grad_norm, training.ppo_clip_ratio, training.num_epochs) == (0.5, 0.1, 2)
    assert (config.evaluation.judge, config.evaluation.judge_path) == (("model",), Path("/prm"))
    args = {"ROLLOUT_ARGS": rollout, "REWARD_ARGS": reward, "OPTIMIZER_ARGS": optimiser}
    printed = shlex.split(run("run_binary_rl.sh", "--dry-run", **args).stdout)
    assert resolved(printed).config == config


@pytest.mark.parametrize(
    ("flags", "refusal"),
    [
        ("--nproc_per_node=8", r"training.gpus_per_node \(variable GPUS_PER_NODE\) = 8"),
        ("--reward-aggregation mean", "majority is the only value"),
        ("--custom-rm-path none.py", "there is no such file"),
        ("--lr-warmup-samples many", "no number of samples"),
        ("--unheard-of 1", "has no flag --unheard-of; it takes --eps-clip"),
        ("--lr", "--lr needs a value"),
    ],
)
def test_what_is_not_done_is_refused_with_a_sentence(flags: str, refusal: str) -> None:
    with pytest.raises(ConfigError, match=refusal):
        require_available(config_of("run_binary_rl.sh", *flags.split()))


def test_the_scripts_of_agents_at_work_take_the_flags_of_env_run() -> None:
    flags = ["--benchmark", "swe-bench-lite", "--num-episodes", "16", "--parallel-envs", "4", "--max-turns", "20"]
    assert translate("run_swe_agent.sh", flags) == [
        *("env", "run", "swe", "--num-episodes", "16"),
        *("rollout.benchmark=swe-bench-lite", "rollout.parallel_envs=4", "rollout.max_turns=20"),
    ]


def test_a_reward_file_of_your_own_is_the_judge(tmp_path: Path) -> None:
    file = tmp_path / "custom_reward.py"
    file.write_text("class CustomRewardModel: ...\n")
    found = config_of("run_binary_rl.sh", "--custom-rm-path", str(file), "--rm-checkpoint", "/prm").evaluation
    assert (found.judge, found.judge_function) == (("function",), f"{file}:CustomRewardModel")
    assert found.judge_path == Path("/prm")


def test_serving_collecting_and_training_apart() -> None:
    served = config_of("serve_model.py", "--model-path", "/m", "--port", "8000", "--gpu-ids", "1")
    assert (served.model.checkpoint_path, served.gateway.port, served.engine.gpu_ids) == (Path("/m"), 8000, (1,))
    flags = ["--api-endpoint", "http://localhost:8000", "--output-dir", "./rollouts", "--session-aware"]
    assert translate("collect_rollouts.py", flags) == ["rollouts", "collect", *flags]
    command = translate("train_async.py", ["--rollout-dir", "r", "--checkpoint-dir", "/c", "--method", "combine"])
    assert command[:3] == ["train", "--rollout-dir", "r"]
    assert resolved(command).config.training.save_path == Path("/c")
    with pytest.raises(ConfigError, match=r"training.gpu_ids = 2,3,4,5: training.backend=local trains on one GPU"):
        require_available(config_of("train_async.py", "--gpus", "2,3,4,5"))


def test_torchrun_may_start_one_process() -> None:
    assert run("train_grpo.py", "--dry-run", WORLD_SIZE="1").returncode == 0
    done = run("train_grpo.py", "--dry-run", WORLD_SIZE="8")
    assert (done.returncode, "torchrun started 8 processes" in done.stderr) == (2, True)


def test_how_torchruns_processes_would_meet_is_no_setting_of_ours() -> None:
    meeting = {"WORLD_SIZE": "1", "MASTER_ADDR": "host-1", "MASTER_PORT": "29500"}
    assert "MASTER_ADDR" in run("train_grpo.py", "model.checkpoint_path=/none", **meeting).stderr, "a person said so"
    done = run("train_grpo.py", "model.checkpoint_path=/none", TORCHELASTIC_RUN_ID="none", **meeting)
    assert "MASTER" not in done.stderr
    assert "/none" in done.stderr
