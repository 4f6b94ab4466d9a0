"""The commands about agents at work on tasks, and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from openclaw_rl.cli.options import AsJson, Loaded, arg, command, opt
from openclaw_rl.errors import ConfigError
from openclaw_rl.plugins import whole_path

room = typer.Typer()
env = typer.Typer(help="Agents at work on tasks: terminal, SWE, tool calls.", no_args_is_help=True)
room.add_typer(env, name="env")

Track = Annotated[str, arg("TRACK", "Which environment; `openclaw-rl env list` lists them.")]
Tasks = Annotated[str | None, opt("--tasks DIR|SET", "Where tasks come from: a folder, a URL, or a set by its name.")]
TaskNames = Annotated[list[str] | None, opt("--task NAME", "Only this task; repeatable.")]
Harness = Annotated[str | None, opt("--harness NAME", "Who acts.", show_default="rollout.harness")]
_RUNNING = ("--model", "--engine")


@command(env, "list")
def show_list(loaded: Loaded, as_json: AsJson = False) -> None:
    """List environments with their task sets, and the agents that can attempt them here."""
    from openclaw_rl.cli.env.listing import list_environments

    list_environments(loaded.config, as_json=as_json)


@command(env, flags=(*_RUNNING, "--parallel-envs", "--num-rollout-workers", "--async-collection", "--benchmark"))
def run(
    context: typer.Context,
    loaded: Loaded,
    track: Track,
    tasks: Tasks = None,
    task: TaskNames = None,
    num_episodes: Annotated[int | None, opt("--num-episodes N", "Attempts in all.", min=1, show_default="64")] = None,
    group_size: Annotated[int, opt("--group-size N", "Attempts at one task that are compared.", min=1)] = 8,
    harness: Harness = None,
    name: Annotated[str | None, opt("--run NAME", "Goes on with the collection of this name.")] = None,
    seed: Annotated[int, opt("--seed N", "Of the order of tasks.", min=0)] = 0,
    demo: Annotated[
        bool, opt("--demo", "A few attempts, each step shown; nothing is kept unless --data-dir is named.")
    ] = False,
    show: Annotated[bool, opt("--show", "Show what the agents do.")] = False,
    as_json: AsJson = False,
) -> None:
    """Let agents attempt tasks, in groups and in parallel, and learn from how they did.

    Uses the running server, or starts one. Training goes on as groups complete. Ctrl-C stops it; `--run NAME` goes on
    where it stopped.
    """
    from openclaw_rl.cli.env.running import RunPlan, run_tasks

    if demo and name is not None:
        raise ConfigError("a demo is no collection to go on with; leave out --demo or --run")
    plan = RunPlan(
        track=whole_path(track),
        source=source_of(tasks, loaded),
        names=tuple(task or ()),
        num_episodes=num_episodes or (_DEMO_EPISODES if demo else _EPISODES),
        group_size=min(group_size, _DEMO_GROUP) if demo else group_size,
        harness=_harness(harness, loaded),
        name=name,
        seed=seed,
        is_demo=demo,
        show_steps=show or demo,
    )
    files, settings = context.params["config"] or (), context.params["settings"] or ()
    raise typer.Exit(run_tasks(loaded, plan, files=files, overrides=settings, as_json=as_json))


@command(env, "eval", flags=_RUNNING)
def evaluate(
    context: typer.Context,
    loaded: Loaded,
    track: Track,
    tasks: Tasks = None,
    task: TaskNames = None,
    version: Annotated[int | None, opt("--version N", "Which version.", min=0, show_default="the live one")] = None,
    compare: Annotated[int, opt("--compare N", "Beside which version; 0 is the base model.", min=0)] = 0,
    num_tasks: Annotated[int, opt("--num-tasks N", "Tasks, at most.", min=1)] = 32,
    attempts: Annotated[int, opt("--attempts N", "Attempts of each version at each task.", min=1)] = 1,
    train: Annotated[bool, opt("--train-tasks", "The tasks to train on, not those that are held out.")] = False,
    harness: Harness = None,
    show: Annotated[bool, opt("--show", "Show what the agents do.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare two versions on held-out tasks: how many they solve, with 95 % intervals. Nobody learns from it."""
    from openclaw_rl.cli.env.examining import ExamPlan, examine_tasks

    plan = ExamPlan(
        track=whole_path(track),
        source=source_of(tasks, loaded),
        names=tuple(task or ()),
        version=version,
        compare=compare,
        num_tasks=num_tasks,
        attempts=attempts,
        split="train" if train else "held_out",
        harness=_harness(harness, loaded),
        show_steps=show,
    )
    files, settings = context.params["config"] or (), context.params["settings"] or ()
    raise typer.Exit(examine_tasks(loaded, plan, files=files, overrides=settings, as_json=as_json))


@command(env)
def check(
    loaded: Loaded,
    tasks: Annotated[str, arg("DIR|SET", "A folder with tasks, or a set by its name.")],
    track: Annotated[str, opt("--track TRACK", "Which environment's tasks they are.")] = "terminal",
    task: TaskNames = None,
    as_json: AsJson = False,
) -> None:
    """Try tasks themselves: doing nothing must earn 0, the author's solution 1, both twice the same.

    Exit status 1 if a task is not fit to train on.
    """
    from openclaw_rl.cli.env.checking import check_tasks

    source = source_of(tasks, loaded)
    raise typer.Exit(check_tasks(loaded.config, whole_path(track), source, tuple(task or ()), as_json=as_json))


@command(env)
def install(
    loaded: Loaded,
    harness: Annotated[str, arg("HARNESS", "Which agent; `openclaw-rl env list` lists them.")],
) -> None:
    """Install the program of an agent of other people's, from npm or PyPI, for boxes to have it.

    It goes below model.cache_dir, and touches nothing else of the machine.
    """
    from openclaw_rl.cli.env.installing import install_harness

    install_harness(loaded.config, harness)


@command(env, "make-swe")
def make_swe(
    loaded: Loaded,
    repo: Annotated[Path, arg("REPO", "A folder with a Python package and its pytest tests.")],
    out: Annotated[Path, opt("--out DIR", "The set of tasks; one that is there grows.")],
    num: Annotated[int, opt("--num N", "Tasks to make.", min=1)] = 20,
    python: Annotated[
        Path | None, opt("--python VENV", "The venv its tests run with.", show_default="one with pytest alone")
    ] = None,
    held_out: Annotated[bool, opt("--held-out", "Tasks to measure with, not to train on.")] = False,
    seed: Annotated[int, opt("--seed N", "Of the faults.", min=0)] = 0,
    as_json: AsJson = False,
) -> None:
    """Make SWE tasks from a repository: faults of one place that its own tests find, each tried in a box."""
    from openclaw_rl.cli.env.making import make_set

    raise typer.Exit(
        make_set(
            loaded.config,
            repo,
            out,
            num=num,
            venv=python,
            split="held_out" if held_out else "train",
            seed=seed,
            as_json=as_json,
        )
    )


@command(env, "serve")
def serve_rooms(
    loaded: Loaded,
    host: Annotated[str, opt("--listen HOST", "Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, opt("--port PORT", "Port to listen on; 0 takes any free one.", min=0)] = 30100,
    openenv: Annotated[str | None, opt("--openenv TRACK", "Speak OpenEnv, and serve the tasks of this track.")] = None,
    tasks: Tasks = None,
) -> None:
    """Serve rooms for attempts to other machines: name its URL there in rollout.env_servers.

    The key is rollout.env_key, or a new one that is printed. Ctrl-C ends all rooms. With `--openenv TRACK` it is an
    OpenEnv server of one track instead, for other people's trainers.
    """
    from openclaw_rl.cli.env.serving import serve_environments, serve_track

    if openenv is None:
        if tasks is not None:
            raise ConfigError("rooms are for any tasks; --tasks belongs to --openenv TRACK")
        serve_environments(loaded.config, host=host, port=port)
    else:
        serve_track(loaded.config, whole_path(openenv), source_of(tasks, loaded), host=host, port=port)


def _harness(named: str | None, loaded: Loaded) -> str:
    rollout = loaded.config.rollout
    return whole_path(named or rollout.function_path or rollout.harness)


def source_of(tasks: str | None, loaded: Loaded) -> str:
    """A folder that is there is named by its whole path: the server may run elsewhere."""
    named = tasks or loaded.config.rollout.benchmark or ""
    return str(Path(named).resolve()) if named and Path(named).exists() else named


_EPISODES, _DEMO_EPISODES, _DEMO_GROUP = 64, 8, 4
