"""Which environments and harnesses there are. A new one is one file and one line here, or an import path."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from openclaw_rl.config import RolloutConfig
from openclaw_rl.envs.harness.builtin import BuiltinAgent
from openclaw_rl.envs.harness.launches import LAUNCHES, Launch
from openclaw_rl.envs.harness.program import ProgramHarness
from openclaw_rl.envs.harness.programs import ProgramShelf
from openclaw_rl.envs.sandbox.box import Sandbox
from openclaw_rl.envs.swe.environment import SweEnvironment
from openclaw_rl.envs.tasks.openenv.environment import OpenEnvEnvironment
from openclaw_rl.envs.terminal.environment import TerminalEnvironment
from openclaw_rl.envs.toolcall.environment import ToolcallEnvironment
from openclaw_rl.errors import ConfigError
from openclaw_rl.plugins import load_named
from openclaw_rl.protocols import Environment, Harness

_Made = TypeVar("_Made")


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvMeans:
    """What environments and harnesses are made of. `cache`: where they keep what is dear to make, such as images."""

    rollout: RolloutConfig
    sandbox: Sandbox
    cache: Path


ENVIRONMENTS: Mapping[str, Callable[[EnvMeans], Environment]] = {
    "terminal": lambda means: TerminalEnvironment(rollout=means.rollout, sandbox=means.sandbox, cache=means.cache),
    "swe": lambda means: SweEnvironment(rollout=means.rollout, sandbox=means.sandbox, cache=means.cache),
    "toolcall": lambda means: ToolcallEnvironment(means.rollout, means.sandbox),
    "openenv": lambda _: OpenEnvEnvironment(),
}


def programs_in(cache: Path) -> Path:
    """Where the programs of others are."""
    return cache / "clients"


def _program(launch: Launch) -> Callable[[EnvMeans], Harness]:
    return lambda means: ProgramHarness(launch, ProgramShelf(programs_in(means.cache)))


HARNESSES: Mapping[str, Callable[[EnvMeans], Harness]] = {
    BuiltinAgent.name: lambda means: BuiltinAgent(max_turns=means.rollout.max_turns, max_steps=means.rollout.max_steps),
    **{name: _program(launch) for name, launch in LAUNCHES.items()},
}


def make_environment(name: str, means: EnvMeans) -> Environment:
    """The environment of this name, or the one that an import path names."""
    return _make(name, ENVIRONMENTS, means, "environment")


def make_harness(name: str, means: EnvMeans) -> Harness:
    """The harness of this name, or the one that an import path names."""
    return _make(name, HARNESSES, means, "harness")


def _make(name: str, known: Mapping[str, Callable[[EnvMeans], _Made]], means: EnvMeans, kind: str) -> _Made:
    if name in known:
        return known[name](means)
    if ":" not in name:
        raise ConfigError(f"there is no {kind} {name!r}; expected {', '.join(known)}, or package.module:name")
    _, made = load_named(name, kind)
    found: _Made = made(means)
    return found
