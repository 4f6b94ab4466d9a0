"""Any OpenEnv server as an environment: a source is its address, a task one of its tasks, or a seed.

    SPLIT/INDEX     where the server lists tasks: reset(split=…, index=…); a split of type `train` trains, others do not
    seed-N          elsewhere: reset(seed=N)

Its rewards come with its steps: an attempt is worth their sum, and is solved where that, or the last of them, reaches
1. A reward of None counts nothing; but an episode that the server ended without any reward has no worth: there the
environment failed.
The server has no box: only an agent that calls tools can act there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import aiohttp
import orjson
from pydantic import ValidationError

from openclaw_rl.backoff import Backoff
from openclaw_rl.envs.tasks.openenv.address import ServerAddress, ServerDesk
from openclaw_rl.envs.tasks.openenv.episode import ActionRefused, ServerEpisode, open_episode
from openclaw_rl.envs.tasks.openenv.shapes import (
    CallResult,
    Metadata,
    OfferedTools,
    Schemas,
    StepResult,
    shown,
    text_of,
    text_of_result,
)
from openclaw_rl.errors import EnvBusy, EnvError, TaskError
from openclaw_rl.types import (
    Grade,
    Json,
    Message,
    Observation,
    Opening,
    Ran,
    Split,
    Task,
    TaskRef,
    TaskSource,
    Tool,
    ToolCall,
)

NAME = "openenv"
NUM_SEEDS = 64
FIRST_HELD_OUT_SEED = 1_000_000
"""Far from the seeds that train, however many of those are asked for. A quarter as many are held out."""
MAX_TASKS = 100_000
_PAUSES = Backoff(first_s=0.25, longest_s=5.0)
MAX_ACTION_BYTES = 2**20
"""Servers cut off who sends much more; so long an action is the agent's fault, not the connection's."""


class OpenEnvEnvironment:
    """`Environment` over the servers of others."""

    name = NAME

    def __init__(self, *, answer_timeout_s: float = 120.0, max_wait_s: float = 600.0) -> None:
        self._answer_timeout_s = answer_timeout_s
        self._max_wait_s = max_wait_s
        self._about: dict[str, Metadata] = {}
        """By source. Kept, since a server makes an instance of its environment to say it."""

    def sources(self) -> Sequence[TaskSource]:
        return ()

    async def tasks(self, source: str) -> Sequence[Task]:
        address = ServerAddress.parse(source)
        async with aiohttp.ClientSession() as session:
            desk = ServerDesk(address, session)
            await desk.schemas()
            about = self._about[source] = await desk.metadata()
            name, splits = await desk.splits()
            sizes = [(split, await desk.num_tasks(name, split.name)) for split in splits]
        if not splits:
            return list(_seeds(source, about, address.num_tasks or NUM_SEEDS))
        tasks: list[Task] = []
        for split, size in sizes:
            if address.num_tasks is None and size > MAX_TASKS:
                raise TaskError(f"split {split.name} of {address.host} has {size} tasks; write #tasks=N behind it")
            kind: Split = "train" if split.type == "train" else "held_out"
            for index in range(min(size, address.num_tasks or size)):
                ref = TaskRef(environment=NAME, source=source, name=f"{split.name}/{index}")
                tasks.append(Task(ref=ref, split=kind, instruction=f"{about.name}: task {index} of {split.name}"))
        return tasks

    async def room(self, task: TaskRef, *, gateway: str, programs: Mapping[str, Path]) -> OpenEnvRoom:
        if programs:
            raise TaskError("an OpenEnv server has no box to run programs in; use the built-in agent")
        address, wish = ServerAddress.parse(task.source), reset_wish(task.name)
        if task.source not in self._about:
            async with aiohttp.ClientSession() as session:
                self._about[task.source] = await ServerDesk(address, session).metadata()
        return OpenEnvRoom(
            address,
            wish,
            about=self._about[task.source],
            answer_timeout_s=self._answer_timeout_s,
            max_wait_s=self._max_wait_s,
        )


def reset_wish(name: str) -> dict[str, Json]:
    """What a server is asked for a task of this name.

    >>> reset_wish("test/12"), reset_wish("seed-3")
    ({'split': 'test', 'index': 12}, {'seed': 3})
    """
    split, slash, number = name.rpartition("/" if "/" in name else "-")
    if not (number.isascii() and number.isdigit()) or not split or (slash == "-" and split != "seed"):
        raise TaskError(f"{name!r} is no task of an OpenEnv server; its tasks are named SPLIT/INDEX or seed-N")
    return {"split": split, "index": int(number)} if slash == "/" else {"seed": int(number)}


class OpenEnvRoom:
    """One connection. Tools are those that the server lists, or one, `step`, with the schema of its actions.

    Opening waits up to `max_wait_s` for a server that has no room: most have just one.
    """

    def __init__(
        self,
        address: ServerAddress,
        wish: dict[str, Json],
        *,
        about: Metadata,
        answer_timeout_s: float,
        max_wait_s: float,
    ) -> None:
        self._address = address
        self._about = about
        self._wish = wish
        self._answer_timeout_s = answer_timeout_s
        self._max_wait_s = max_wait_s
        self._session: aiohttp.ClientSession | None = None
        self._episode: ServerEpisode | None = None
        self._calls_tools = False
        self._tools: tuple[Tool, ...] = ()
        self._rewards: list[float | None] = []
        self._is_done = False

    async def open(self) -> Opening:
        self._session = aiohttp.ClientSession()
        schemas = await ServerDesk(self._address, self._session).schemas()
        begun = await self._begun(self._session)
        if begun.done:
            raise EnvError(f"{self._address.host} ended the task before it began")
        self._calls_tools = schemas.calls_tools
        self._tools = await self._offered() if self._calls_tools else (_step_tool(schemas),)
        about = f"{self._about.name}: {self._about.description}".rstrip(": ")
        system = f"You act in an environment by calling tools. {about}"
        told = text_of(begun.observation) or "Begin."
        return Opening(
            messages=(Message(role="system", content=system), Message(role="user", content=told)), tools=self._tools
        )

    async def solve(self) -> None:
        raise TaskError("an OpenEnv server has no solution of its author's")

    async def step(self, call: ToolCall) -> Observation:
        if self._is_done:
            return Observation(content="The attempt is over.", is_error=True, is_done=True)
        if call.name not in (names := [tool.name for tool in self._tools]):
            return Observation(content=f"There is no tool {call.name!r}; there is {', '.join(names)}.", is_error=True)
        arguments = _arguments(call)
        if isinstance(arguments, str):
            return Observation(content=arguments, is_error=True)
        action = arguments
        if self._calls_tools:
            action = {"type": "call_tool", "tool_name": call.name, "arguments": arguments}
        try:
            result = await self._live.step(action)
        except ActionRefused as refused:
            return Observation(content=shown(str(refused)), is_error=True)
        self._rewards.append(result.reward)
        self._is_done = result.done
        content, is_error = self._told(result) if self._calls_tools else (text_of(result.observation), False)
        return Observation(content=content, is_error=is_error, is_done=result.done, reward=result.reward)

    async def run(self, command: str, *, timeout_s: float, env: Mapping[str, str]) -> Ran:
        raise TaskError("an OpenEnv server has no box to run a command in; use the built-in agent")

    async def evaluate(self) -> Grade:
        rewards = [reward for reward in self._rewards if reward is not None]
        if self._is_done and not rewards:
            return Grade(failure=f"{self._address.host} ended the episode without any reward")
        worth = sum(rewards, 0.0)
        share = min(1.0, max(0.0, worth, *rewards[-1:]))
        return Grade(reward=worth, share=share, metrics={"steps": float(len(self._rewards))})

    async def close(self) -> None:
        if self._episode is not None:
            await self._episode.close()
            self._episode = None
        if self._session is not None:
            await self._session.close()
            self._session = None

    @property
    def _live(self) -> ServerEpisode:
        if self._episode is None:
            raise EnvError("the attempt has no connection: it was not begun, or is closed")
        return self._episode

    async def _begun(self, session: aiohttp.ClientSession) -> StepResult:
        deadline, refused = asyncio.get_running_loop().time() + self._max_wait_s, 0
        while True:
            self._episode = await open_episode(self._address, session, answer_timeout_s=self._answer_timeout_s)
            try:
                return await self._episode.reset(self._wish)
            except EnvBusy:
                refused += 1
                pause_s = _PAUSES.pause_s(refused)
                if asyncio.get_running_loop().time() + pause_s > deadline:
                    raise
            await self._episode.close()
            await asyncio.sleep(pause_s)

    async def _offered(self) -> tuple[Tool, ...]:
        try:
            listed = await self._live.step({"type": "list_tools"})
            tools = OfferedTools.model_validate(listed.observation).tools
        except (ActionRefused, ValidationError) as error:
            raise EnvError(f"{self._address.host} does not list its tools: {error}") from error
        if not tools:
            raise EnvError(f"{self._address.host} lists no tool: {listed.observation.get('metadata')}")
        return tuple(tool.to_tool() for tool in tools)

    def _told(self, result: StepResult) -> tuple[str, bool]:
        """What a call of a tool came to, and whether the call was at fault."""
        try:
            called = CallResult.model_validate(result.observation)
        except ValidationError:
            return text_of(result.observation), False  # an environment may answer in a form of its own
        if called.error is None:
            return text_of_result(called.result)
        if called.error.error_type == "transport_error":
            raise EnvError(f"{self._address.host} could not reach its tool {called.tool_name}: {called.error.message}")
        return shown(called.error.message), True


def _seeds(source: str, about: Metadata, count: int) -> Iterator[Task]:
    parts: tuple[tuple[Split, int, int], ...] = (
        ("train", 0, min(count, FIRST_HELD_OUT_SEED)),
        ("held_out", FIRST_HELD_OUT_SEED, -(-count // 4)),
    )
    for split, first, number in parts:
        for seed in range(first, first + number):
            ref = TaskRef(environment=NAME, source=source, name=f"seed-{seed}")
            yield Task(ref=ref, split=split, instruction=f"{about.name}: seed {seed}")


def _step_tool(schemas: Schemas) -> Tool:
    description = "Takes one action in the environment, and shows what came of it."
    return Tool(name="step", description=description, parameters=schemas.step_parameters)


def _arguments(call: ToolCall) -> dict[str, Json] | str:
    """The arguments, or what the agent is told where there are none that can be sent."""
    if len(call.arguments.encode()) > MAX_ACTION_BYTES:
        return f"The arguments are longer than the {MAX_ACTION_BYTES} bytes that an action may have."
    try:
        arguments = orjson.loads(call.arguments)
    except orjson.JSONDecodeError as error:
        return f"The arguments are no JSON: {error}."
    return arguments if isinstance(arguments, dict) else "The arguments must be a JSON object."
