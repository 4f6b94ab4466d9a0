"""Programs of others as agents: a served model, and a task -> the settings that a program finds, and how it is started.

A program is one entry in `LAUNCHES`. Each works by itself until it thinks that it is done, asks nobody anything, and
trusts the box: what is dangerous on a person's machine is what boxes are for. Its settings lie outside the home and the
task, which are the agent's to work in. Paths are paths in the box.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from openclaw_rl.clients import (
    PROVIDER,
    Served,
    claude_variables,
    codex_provider,
    codex_top,
    openai_variables,
    openclaw_provider,
    opencode_provider,
    toml_value,
)
from openclaw_rl.envs.harness.programs import (
    CLAUDE_CODE,
    CODEX,
    MINI_SWE_AGENT,
    NODE,
    OPENCLAW,
    OPENCODE,
    Program,
)
from openclaw_rl.types import Opening

SETTINGS = "/var/tmp/openclaw-rl"  # noqa: S108  (nobody else is in the box; Codex wants no settings in /tmp)

_OPENCLAW = f"{SETTINGS}/openclaw.json"
_CODEX = f"{SETTINGS}/config.toml"
_OPENCODE = f"{SETTINGS}/opencode.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """`needs` are the programs in the box, `files` and `env` tell them where the model is, `words` are the command.

    `reads_task`: it is told the task by its input, which is empty otherwise.
    """

    name: str
    needs: tuple[Program, ...]
    words: Callable[[Served, Opening], tuple[str, ...]]
    env: Callable[[Served], Mapping[str, str]]
    files: Callable[[Served, Opening], Mapping[str, str]] = lambda _served, _opening: {}
    reads_task: bool = False


def _openclaw_json(served: Served, opening: Opening) -> str:
    # It takes what follows an @ for a login: the name of a version goes to the gateway beside its own.
    known = replace(served, model="attempt")
    defaults = {
        "model": {"primary": known.named},
        "models": {known.named: {"params": {"extra_body": {"model": served.model}}}},
        "workspace": opening.workdir,
        "skipBootstrap": True,  # or it leaves files about itself in the workspace
        "heartbeat": {"every": "0m"},
    }
    return json.dumps(
        {
            "agents": {"defaults": defaults},
            "models": {"providers": {PROVIDER: openclaw_provider(known)}},
            "update": {"checkOnStart": False},
            "logging": {"file": f"{SETTINGS}/openclaw.log"},
        }
    )


def _codex_toml(served: Served) -> str:
    values = {**codex_top(served), f"model_providers.{PROVIDER}": codex_provider(served)}
    return "".join(f"{name} = {toml_value(value)}\n" for name, value in values.items())


def _opencode_json(served: Served) -> str:
    provider = {PROVIDER: opencode_provider(served)}
    return json.dumps({"provider": provider, "model": served.named, "small_model": served.named})


LAUNCHES: Mapping[str, Launch] = {
    launch.name: launch
    for launch in (
        Launch(
            name="openclaw",
            needs=(NODE, OPENCLAW),
            # The agent that people talk to, with all its tools; the box has the clock.
            words=lambda _, opening: (
                *(*NODE.in_the_box, *OPENCLAW.in_the_box, "agent", "--local", "--agent", "main"),
                *("--session-id", "attempt", "--timeout", "0", f"--message={opening.instruction}"),
            ),
            env=lambda _: {"OPENCLAW_STATE_DIR": SETTINGS, "OPENCLAW_CONFIG_PATH": _OPENCLAW},
            files=lambda served, opening: {_OPENCLAW: _openclaw_json(served, opening)},
        ),
        Launch(
            name="codex",
            needs=(NODE, CODEX),
            # It brings a sandbox of its own, which does not work inside another one.
            words=lambda _served, _opening: (
                *(*NODE.in_the_box, *CODEX.in_the_box, "exec", "--skip-git-repo-check"),
                *("--dangerously-bypass-approvals-and-sandbox", "-"),
            ),
            reads_task=True,
            env=lambda _: {"CODEX_HOME": SETTINGS},
            files=lambda served, _: {_CODEX: _codex_toml(served)},
        ),
        Launch(
            name="claude-code",
            needs=(CLAUDE_CODE,),
            words=lambda _served, _opening: (*CLAUDE_CODE.in_the_box, "--print", "--dangerously-skip-permissions"),
            reads_task=True,
            env=lambda served: {
                **claude_variables(served),
                "CLAUDE_CONFIG_DIR": SETTINGS,
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "DISABLE_AUTOUPDATER": "1",
                "IS_SANDBOX": "1",  # or root may not skip permissions
            },
        ),
        Launch(
            name="opencode",
            needs=(OPENCODE,),
            words=lambda _served, _opening: (*OPENCODE.in_the_box, "run", "--auto"),
            reads_task=True,
            env=lambda _: {
                "OPENCODE_CONFIG": _OPENCODE,
                "OPENCODE_DISABLE_AUTOUPDATE": "1",
                "OPENCODE_DISABLE_MODELS_FETCH": "1",
            },
            files=lambda served, _: {_OPENCODE: _opencode_json(served)},
        ),
        Launch(
            name="mini-swe-agent",
            needs=(MINI_SWE_AGENT,),
            words=lambda served, opening: (
                *(*MINI_SWE_AGENT.in_the_box, "--model", f"openai/{served.model}", f"--task={opening.instruction}"),
                *("--yolo", "--exit-immediately"),
            ),
            env=lambda served: {
                **openai_variables(served),
                "MSWEA_GLOBAL_CONFIG_DIR": SETTINGS,
                "MSWEA_CONFIGURED": "true",  # else it asks which model
                "MSWEA_COST_TRACKING": "ignore_errors",  # else it refuses a model that has no price
                "MSWEA_SILENT_STARTUP": "1",
                "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            },
        ),
    )
}
