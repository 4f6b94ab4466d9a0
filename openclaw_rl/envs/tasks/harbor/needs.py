"""What a Harbor task asks for that boxes here do not give: it is refused with every reason, and never run in the wrong
box. And what its boxes get: the network, and variables that are no variables of this machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Literal

from openclaw_rl.envs.tasks.harbor.compose import read_compose
from openclaw_rl.envs.tasks.harbor.directory import BoxSource, HarborStep, HarborTask
from openclaw_rl.errors import TaskError

_TEMPLATE = re.compile(r"\$\{([^}:]+)(?::-(.*))?\}")
_ROOT = (None, 0, "0", "root")

Network = Literal["none", "full"]


def check_needs(task: HarborTask) -> None:
    """`TaskError` with all reasons."""
    reasons = list(dict.fromkeys(_reasons(task)))
    if reasons:
        raise TaskError(f"{task.name} cannot be attempted here: {'; '.join(reasons)}")


def _reasons(task: HarborTask) -> Iterator[str]:
    yield from _of_box(task.plan)
    if len({agent_network(task, step) for step in task.steps}) > 1:
        yield "its steps have different networks, and a box keeps the one that it starts with"
    if any(one.service not in (None, "main") for one in task.config.artifacts):
        yield "it collects artifacts of other services, and there is one box"
    for step, table in zip(task.steps, task.config.steps or (None,), strict=True):
        yield from _of_step(step)
        home = task.folder if table is None else task.folder / "steps" / table.name
        if (home / "trajectory.json").exists():
            yield "it continues a trajectory that another agent began (trajectory.json)"
        if table is not None and table.healthcheck is not None:
            yield "a step has a health check"
        if table is not None and any(one.service not in (None, "main") for one in table.artifacts):
            yield "it collects artifacts of other services, and there is one box"


def _of_box(plan: BoxSource) -> Iterator[str]:
    table = plan.table
    if table.os != "linux":
        yield f"it is for {table.os}"
    if table.gpus or table.tpu:
        yield "it needs a GPU or TPU, and boxes have none"
    yield from read_compose(plan.folder).reasons
    if table.healthcheck is not None:
        yield "it has a health check of a service that the image would start"
    if table.skills_dir is not None:
        yield "it gives its agent skills (skills_dir)"
    if table.mcp_servers:
        yield "it gives its agent MCP servers"
    if table.network_mode == "allowlist":
        yield 'it allows some hosts alone; boxes have network_mode "no-network" or "public"'


def _of_step(step: HarborStep) -> Iterator[str]:
    users = (step.agent.user, step.verifier.user, *(one.user for one in step.verifier.collect))
    if any(user not in _ROOT for user in users):
        yield "it works as a user that is not root, and boxes work as root"
    if "allowlist" in (step.agent.network_mode, step.verifier.network_mode):
        yield 'it allows some hosts alone; boxes have network_mode "no-network" or "public"'
    if any(one.service != "main" for one in step.verifier.collect):
        yield "it collects from other services, and there is one box"
    if step.grader is not None:
        yield from _of_box(step.grader)


def agent_network(task: HarborTask, step: HarborStep) -> Network:
    return _network(step.agent.network_mode or task.config.environment.network_mode)


def verifier_network(task: HarborTask, step: HarborStep) -> Network:
    table = task.config.environment if step.grader is None else step.grader.table
    return _network(step.verifier.network_mode or table.network_mode)


def _network(mode: str) -> Network:
    return "full" if mode == "public" else "none"


def resolved(env: Mapping[str, str], where: str) -> dict[str, str]:
    """Harbor puts variables of the machine into `${NAME}`. A task of others is given none: it takes its own default."""
    found = {}
    for name, value in env.items():
        template = _TEMPLATE.fullmatch(value)
        if template is not None and template[2] is None:
            raise TaskError(
                f"{where} asks for the variable {template[1]} of this machine, which no box is given; write its value, "
                f"or a default as ${{{template[1]}:-…}}, into task.toml"
            )
        found[name] = value if template is None else template[2]
    return found
