"""The documented launch scripts, by their names, as commands of ours.

    run_binary_rl.sh --lr 1e-6      openclaw-rl up --config configs/binary.yaml training.learning_rate=1e-6

The scripts in launchers/ are one call of this. A flag becomes a setting (`FLAGS`); what this release does not do is
refused by the settings themselves, or here with a sentence. `--dry-run` prints the command instead of running it.
"""

from __future__ import annotations

import ast
import math
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from openclaw_rl.config import load_config
from openclaw_rl.errors import ConfigError

CONFIGS = Path(__file__).parents[1] / "configs"


@dataclass(frozen=True, slots=True)
class Script:
    """What a script runs; `config` is a file in configs/, `refused` why it runs nothing."""

    command: tuple[str, ...] = ("up",)
    config: str = ""
    refused: str = ""


_NO_GUI = Script(
    refused="GUI agents come later: this release trains terminal, SWE and tool-call agents (`openclaw-rl env list`)"
)

SCRIPTS: Mapping[str, Script] = {
    "run_qwen3_4b_openclaw_topk_select.sh": Script(config="qwen3-4b-topk-select.yaml"),
    "run_qwen3_4b_openclaw_combine.sh": Script(
        command=("up", "training.distillation=token"), config="qwen3-4b-topk-select.yaml"
    ),
    "run_binary_rl.sh": Script(config="binary.yaml"),
    "run_opd_training.sh": Script(config="opd.yaml"),
    "run_combine_training.sh": Script(config="combine.yaml"),
    "train_grpo.py": Script(config="binary.yaml"),
    "serve_model.py": Script(command=("serve",)),
    "collect_rollouts.py": Script(command=("rollouts", "collect")),
    "train_async.py": Script(command=("train",)),
    "run_terminal_agent.sh": Script(command=("env", "run", "terminal")),
    "run_gui_agent.sh": _NO_GUI,
    "run_swe_agent.sh": Script(command=("env", "run", "swe")),
    "run_toolcall_agent.sh": Script(command=("env", "run", "toolcall")),
    "deploy_to_tinker.sh": Script(command=("up", "training.backend=tinker")),
    "deploy_to_fireworks.sh": Script(command=("up", "training.backend=fireworks")),
}

_SERVICES = ("deploy_to_tinker.sh", "deploy_to_fireworks.sh")

FLAGS: Mapping[str, str] = {
    "--eps-clip": "training.ppo_clip_ratio",
    "--eps-clip-high": "training.ppo_clip_ratio_high",
    "--ppo-clip-ratio": "training.ppo_clip_ratio",
    "--num-rollout-workers": "rollout.num_workers",
    "--parallel-envs": "rollout.parallel_envs",
    "--max-turns": "rollout.max_turns",
    "--benchmark": "rollout.benchmark",
    "--rollout-batch-size": "training.batch_size",
    "--rm-checkpoint": "evaluation.judge_path",
    "--reward-aggregation": "rollout.reward_computation.aggregation",
    "--lr": "training.learning_rate",
    "--clip-grad": "training.clip_grad_norm",
    "--num-epochs": "training.num_epochs",
    "--nproc_per_node": "training.gpus_per_node",
    "--nnodes": "training.nnodes",
    "--node_rank": "training.node_rank",
    "--master_addr": "training.master_addr",
    "--master_port": "training.master_port",
    "--model-path": "model.checkpoint_path",
    "--model": "model.name",
    "--port": "gateway.port",
    "--gpu-ids": "engine.gpu_ids",
    "--gpus": "training.gpu_ids",
    "--method": "training.method",
    "--checkpoint-dir": "training.save_path",
}
"""Flags of the scripts and the settings they are."""

_OWN = ("--rollout-function-path", "--custom-rm-path", "--lr-warmup-samples", "--lora", "--async-collection")
_PASSED_ON = {
    "rollouts": ("--api-endpoint", "--output-dir", "--session-aware"),
    "train": ("--rollout-dir",),
    "env": ("--tasks", "--num-episodes", "--group-size", "--harness"),
}
_SWITCHES = ("--lora", "--async-collection", "--session-aware", "--dry-run", "--help")
_OUR_ROLLOUTS = ("rollout_binary.py", "rollout_opd.py")
_OUR_REWARD_MODEL = "process_reward_model.py"


def launch(script: str, arguments: Sequence[str]) -> None:
    """Runs a script by its name; ends the process as the command does."""
    from openclaw_rl.cli.app import main
    from openclaw_rl.cli.screen import complain

    strings = (shlex.split(os.environ.get(name, "")) for name in ("ROLLOUT_ARGS", "REWARD_ARGS", "OPTIMIZER_ARGS"))
    given = [word for words in strings for word in words] + list(arguments)
    if "--help" in given:
        sys.stdout.write(_help(script))
        return
    try:
        command = translate(script, [word for word in given if word != "--dry-run"])
    except ConfigError as error:
        complain(str(error))
        sys.exit(2)
    if "--dry-run" in given:
        sys.stdout.write(shlex.join(["openclaw-rl", *command]) + "\n")
    else:
        if "TORCHELASTIC_RUN_ID" in os.environ:  # torchrun tells its processes how to meet; one alone meets nobody
            for name in ("MASTER_ADDR", "MASTER_PORT"):
                os.environ.pop(name, None)
        main(command)


def translate(script: str, arguments: Sequence[str]) -> list[str]:
    """The arguments of `openclaw-rl` that do what the script does; ConfigError says what cannot be done."""
    found = SCRIPTS[script]
    if found.refused:
        raise ConfigError(f"{script}: {found.refused}")
    if (num_processes := os.environ.get("WORLD_SIZE", "1")) != "1":
        raise ConfigError(
            f"{script}: torchrun started {num_processes} processes, and this release trains on one GPU; start it with "
            "--nproc_per_node=1, or without torchrun"
        )
    flags, settings, passed = _split(script, arguments)
    config = found.config
    if "--lora" in flags:
        settings.append("training.use_lora=true")
        config = "combine-lora.yaml" if config == "combine.yaml" else config
    if "--async-collection" in flags:
        settings.append("rollout.collection_mode=async")
    rollout = flags.get("--rollout-function-path")
    if rollout is not None and Path(rollout).name not in _OUR_ROLLOUTS:
        settings.append(f"rollout.function_path={rollout}")
    if (reward := flags.get("--custom-rm-path")) is not None:
        settings += _reward_function(reward, has_checkpoint="--rm-checkpoint" in arguments)
    files = [CONFIGS / config] if config else []
    if (warmup := flags.get("--lr-warmup-samples")) is not None:
        if not warmup.isdecimal():
            raise ConfigError(f"{script}: --lr-warmup-samples {warmup} is no number of samples")
        batch_size = load_config(files, overrides=settings).config.training.batch_size
        settings.append(f"training.warmup_steps={math.ceil(int(warmup) / batch_size)}")
    if script in _SERVICES:
        settings = [word for word in settings if not _is_ours_to_leave_out(script, word)]
    command, *fixed = found.command
    rooms = [word for word in fixed if "=" not in word]
    fixed = [word for word in fixed if "=" in word]
    named = [word for file in files for word in ("--config", str(file))]
    return [command, *rooms, *passed, *named, *fixed, *settings]


def _is_ours_to_leave_out(script: str, setting: str) -> bool:
    """A service has its own number of GPUs: it is said that ours counts for nothing."""
    name, _, value = setting.partition("=")
    if name != "training.gpu_ids":
        return False
    sys.stderr.write(f"{script}: --gpus {value} is left out: the service chooses its GPUs, and charges by the token\n")
    return True


def _split(script: str, arguments: Sequence[str]) -> tuple[dict[str, str], list[str], list[str]]:
    """The flags that we read ourselves, the settings that others are, and what the command takes as it stands."""
    passes = _PASSED_ON.get(SCRIPTS[script].command[0], ())
    flags: dict[str, str] = {}
    settings: list[str] = []
    passed: list[str] = []
    words = list(arguments)
    while words:
        flag, equals, value = words.pop(0).partition("=")
        if not flag.startswith("-"):
            settings.append(f"{flag}{equals}{value}")  # SECTION.KEY=VALUE
            continue
        if flag not in (*FLAGS, *_OWN, *passes):
            raise ConfigError(f"{script} has no flag {flag}; it takes {', '.join((*FLAGS, *_OWN, *passes))}")
        if flag not in _SWITCHES and not equals:
            if not words:
                raise ConfigError(f"{script}: {flag} needs a value")
            value = words.pop(0)
        if flag in passes:
            passed += [flag] if flag in _SWITCHES else [flag, value]
        elif flag in _OWN:
            flags[flag] = value
        else:
            settings.append(f"{FLAGS[flag]}={value}")
    return flags, settings, passed


def _reward_function(path: str, *, has_checkpoint: bool) -> list[str]:
    """A file of rewards as `evaluation.judge_function`. The documented reward model itself is our judge `model`."""
    if ":" in path:
        return [f"evaluation.judge_function={path}"]
    file = Path(path)
    if not file.is_file():
        if file.name == _OUR_REWARD_MODEL and has_checkpoint:
            return ["evaluation.judge=model"]
        raise ConfigError(f"--custom-rm-path {path}: there is no such file; name one, or give --rm-checkpoint alone")
    names = [node.name for node in ast.parse(file.read_text()).body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    for name in ("CustomRewardModel", "compute_reward"):
        if name in names:
            return [f"evaluation.judge_function={file.absolute()}:{name}"]
    raise ConfigError(
        f"--custom-rm-path {path}: it has neither CustomRewardModel nor compute_reward; name what it has: {path}:NAME"
    )


def _help(script: str) -> str:
    found = SCRIPTS[script]
    if found.refused:
        return f"{script}: {found.refused}\n"
    command = shlex.join(
        ["openclaw-rl", *found.command, *(["--config", f"configs/{found.config}"] if found.config else [])]
    )
    passes = _PASSED_ON.get(found.command[0], ())
    rows = [f"  {flag:24} {key}" for flag, key in FLAGS.items()]
    others = ", ".join((*_OWN, *passes, "--dry-run"))
    return f"{script} runs: {command}\n\n" + "\n".join(rows) + f"\n\nalso: {others}, and SECTION.KEY=VALUE\n"


if __name__ == "__main__":
    launch(sys.argv[1], sys.argv[2:])
