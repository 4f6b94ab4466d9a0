"""All tools of one attempt. What a call says is read, checked, and carried to the toolbox that has the tool."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from difflib import get_close_matches

from openclaw_rl.envs.sandbox.box import Sandbox
from openclaw_rl.envs.toolcall.tasks import SUBMIT, Called, ToolTask
from openclaw_rl.envs.toolcall.tools.arguments import read_arguments
from openclaw_rl.envs.toolcall.tools.calculator import CALCULATOR
from openclaw_rl.envs.toolcall.tools.functions import BoxedFunctions
from openclaw_rl.envs.toolcall.tools.interpreter import PythonTool
from openclaw_rl.envs.toolcall.tools.servers import server_tools
from openclaw_rl.envs.toolcall.tools.toolbox import CallFault, OwnTool, OwnTools, Toolbox
from openclaw_rl.envs.toolcall.tools.tools_file import BROUGHT, ToolsFile
from openclaw_rl.errors import TaskError
from openclaw_rl.types import Observation, Tool, ToolCall


class Workbench:
    """Opened and closed as one. `CallFault` where a call reaches no tool."""

    def __init__(self, toolboxes: Sequence[Toolbox]) -> None:
        self._toolboxes = toolboxes
        self._found: dict[str, tuple[Tool, Toolbox]] = {}

    @property
    def tools(self) -> tuple[Tool, ...]:
        return tuple(tool for tool, _ in self._found.values())

    async def open(self) -> None:
        for toolbox in self._toolboxes:
            await toolbox.open()
            for tool in toolbox.tools:
                if tool.name in self._found:
                    raise TaskError(f"two tools have the name {tool.name!r}; let the task want one of them")
                self._found[tool.name] = (tool, toolbox)

    async def call(self, call: ToolCall) -> tuple[Called, Observation]:
        if call.name not in self._found:
            near = get_close_matches(call.name, self._found, n=1)
            hint = f" Perhaps you mean {near[0]}." if near else ""
            raise CallFault(f"There is no tool {call.name!r}; there are {', '.join(self._found)}.{hint}")
        tool, toolbox = self._found[call.name]
        arguments = read_arguments(tool, call.arguments)
        observation = await toolbox.call(call.name, arguments)
        return Called(name=call.name, arguments=arguments, is_error=observation.is_error), observation

    async def close(self) -> None:
        async with AsyncExitStack() as closing:
            for toolbox in self._toolboxes:
                closing.push_async_callback(toolbox.close)


def make_workbench(task: ToolTask, sandbox: Sandbox, file: ToolsFile | None) -> Workbench:
    """The tools that a task wants, not yet open; `TaskError` where it wants what there is not, or needs a box that
    cannot be made here."""
    functions = {} if file is None else {name: entry for name, entry in file.functions.items() if entry.is_callable}
    servers = {} if file is None else file.servers
    if unknown := [name for name in task.wants if name not in {*BROUGHT, *functions, *servers}]:
        known = ", ".join([*BROUGHT, *functions, *servers])
        raise TaskError(f"{task.name} wants the tool {unknown[0]!r}; rollout.tools_config and we have {known}")
    own: list[OwnTool] = list(task.problem.tools)
    boxed: list[Toolbox] = []
    theirs = [functions[name] for name in task.wants if name in functions]
    if "calculator" in task.wants and "calculator" not in functions:
        own.append(CALCULATOR)
    if "python" in task.wants and "python" not in functions:
        boxed.append(PythonTool(sandbox))
    if file is not None and theirs:
        boxed.append(BoxedFunctions(sandbox, file.folder, theirs))
    if file is not None:
        boxed += (server_tools(name, servers[name], file.folder, sandbox) for name in task.wants if name in servers)
    if not task.problem.goal.is_a_call:
        own.append(OwnTool(tool=SUBMIT, function=lambda arguments: "The answer is submitted."))
    if boxed and (lacks := sandbox.lacks()):
        raise TaskError(f"{task.name} needs a box: {lacks}")
    return Workbench([*boxed, OwnTools(own)])
