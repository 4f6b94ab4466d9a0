"""One attempt at one task: a key at the desk, a room, the agent at work, a grade, and the key taken back.

    desk.begin ─▶ room.open ─▶ harness.attempt ─▶ room.evaluate ─▶ desk.end

Whatever happens, the room is closed and the desk hears of the end: a failed environment is an outcome of its own, and
so is an attempt that was cancelled. Knows nothing of groups, and looks for no turn: the key says which belong to the
attempt, and the desk tells of them where somebody watches.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from openclaw_rl.envs.harness.builtin import BuiltinAgent
from openclaw_rl.envs.leases.leased import LeasedRoom
from openclaw_rl.envs.orders import Attempted
from openclaw_rl.errors import EnvError, TaskError
from openclaw_rl.protocols import EnvServer, EpisodeDesk, Harness, Room
from openclaw_rl.types import Episode, Grade, Json, Observation, Opening, Outcome, Ran, TaskRef, ToolCall, Turn

Tell = Callable[[Mapping[str, Json]], None]
"""Hears what happens, as JSON objects."""

_TURN_CHARS = 400
"""What is told of a turn's words, and of each call's arguments."""

STOPPED = "the collection was stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempter:
    """Attempts tasks in rooms of `server`."""

    server: EnvServer
    desk: EpisodeDesk
    clock: Callable[[], float] = time.time

    async def attempt(
        self,
        task: TaskRef,
        episode: Episode,
        harness: Harness,
        *,
        programs: str,
        learn: bool,
        version: str = "",
        tell: Tell | None = None,
    ) -> Attempted:
        """`programs`: the name by which the room's server knows the harness. `version` answers instead of the live one;
        `tell` hears each step. `TaskError` for a task that is none."""
        began = self.clock()
        watch = _Watch(episode, tell)
        heard = None if tell is None or harness.name == BuiltinAgent.name else watch.hear
        door = await self.desk.begin(episode, learn=learn, version=version, heard=heard)
        leased = LeasedRoom(self.server, task, request_id=episode.id, gateway=door.url, harness=programs)
        room = _WatchedRoom(leased, watch)
        grade, ended = Grade(failure=STOPPED), ""
        try:
            opening = await room.open()
            ended = await harness.attempt(room, opening, door)
            grade = await room.evaluate()
        except EnvError as error:
            grade = Grade(failure=str(error) or type(error).__name__)
        except TaskError as error:
            grade = Grade(failure=str(error))
            raise
        finally:
            try:
                await room.close()
            finally:
                outcome = Outcome(episode=episode.id, ended_at=self.clock(), reward=grade.reward, failure=grade.failure)
                await self.desk.end(outcome, report=grade.report)
        return Attempted(
            task=episode.task,
            group=episode.group,
            attempt=episode.attempt,
            version=version,
            grade=grade,
            ended=ended,
            num_steps=room.num_steps,
            seconds=round(self.clock() - began, 2),
        )


class _Watch:
    """Tells of one attempt, where somebody wants to know."""

    def __init__(self, episode: Episode, tell: Tell | None) -> None:
        self._episode = episode
        self._tell = tell
        self._num_turns = 0

    def say(self, what: Mapping[str, Json]) -> None:
        if self._tell is not None:
            self._tell({"step": {"task": self._episode.task, "attempt": self._episode.attempt, **what}})

    def hear(self, turn: Turn) -> None:
        """A turn of a program, whose calls no room sees."""
        self._num_turns += 1
        message = turn.message
        calls = [{"name": one.name, "arguments": one.arguments[:_TURN_CHARS]} for one in message.tool_calls]
        self.say({"turn": {"number": self._num_turns, "said": message.content[:_TURN_CHARS], "calls": calls}})


class _WatchedRoom:
    """The room, counting its steps and telling of them."""

    def __init__(self, room: Room, watch: _Watch) -> None:
        self._room = room
        self._say = watch.say
        self.num_steps = 0

    async def open(self) -> Opening:
        opening = await self._room.open()
        self._say({"begins": opening.instruction})
        return opening

    async def solve(self) -> None:
        await self._room.solve()

    async def step(self, call: ToolCall) -> Observation:
        self.num_steps += 1
        self._say({"call": {"name": call.name, "arguments": call.arguments}})
        seen = await self._room.step(call)
        self._say({"seen": seen.content, "is_error": seen.is_error})
        return seen

    async def run(self, command: str, *, timeout_s: float, env: Mapping[str, str]) -> Ran:
        ran = await self._room.run(command, timeout_s=timeout_s, env=env)
        self._say({"ran": ran.output, "exit_code": ran.exit_code})
        return ran

    async def evaluate(self) -> Grade:
        return await self._room.evaluate()

    async def close(self) -> None:
        await asyncio.shield(self._room.close())
