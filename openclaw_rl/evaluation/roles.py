"""Student, teaching assistant and teacher: tasks -> conversations with a chat -> what its first replies were like.

The protocol of the public OpenClaw-RL evaluation in words of our own, with our own tasks and with
what it does not check. Each task and role is a session of its own. The first message is fixed and does not tell what
the role wants; a simulator then reacts to each reply until it says the role's closing word, or 8 turns are over.

    role       gets               wants                        correct             complete
    student    a problem          no lists, bold or headings   the number          two steps at least
    ta         a submission       100 tokens at least          the right verdict   two numbers of the work
    teacher    a submission       friendly words               the right verdict   a strength and a next step

`style` alone, as the public detectors have it, is met by a reply that says nothing; so each first reply is scored for
correctness and completeness too, and for the use of the tools where files are offered: the task is then in a file, and
reading it is part of the work. The simulator is scripted by default, and a model behind any OpenAI-compatible URL
where one is given.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from openclaw_rl.evaluation import detectors
from openclaw_rl.evaluation.cast import ROLES, Role, Task
from openclaw_rl.evaluation.chat import Chat, Reply
from openclaw_rl.evaluation.sessions import Stability
from openclaw_rl.types import Message, Tool, ToolCall

MAX_TURNS = 8
_MAX_CALLS = 6
"""Calls in a row before a reply has to come; a model that never stops calling has not answered."""


class Simulator(Protocol):
    """Says the next message of a role; one that holds `role.done` ends the session and is not sent."""

    async def say(
        self, role: Role, task: Task, conversation: Sequence[Message], reply: Reply, *, session: str
    ) -> str: ...


class ScriptedSimulator:
    """By rules: a complaint while the style is wrong, then the wish to append, then the closing word."""

    async def say(self, role: Role, task: Task, conversation: Sequence[Message], reply: Reply, *, session: str) -> str:
        said = [m.content for m in conversation if m.role == "user"]
        if role.append in said:
            return role.done
        if role.style(reply):
            return role.append
        return role.restyle[(task.number + len(said)) % len(role.restyle)]


class ModelSimulator:
    """A model behind any `Chat` plays the role. It sees the conversation from the other side; thoughts are cut off."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat

    async def say(self, role: Role, task: Task, conversation: Sequence[Message], reply: Reply, *, session: str) -> str:
        system = (
            f"{role.wish}\nYou talk to an AI assistant. Reply with your next message to it only, one or two sentences. "
            f"If its answer is not as you want it, tell it what to change. If it is, ask it to append the answer to "
            f"the file {task.path}. Once that is asked for and done, reply with {role.done} and nothing else."
        )
        seen = [Message(role="system", content=system), Message(role="user", content="Begin the conversation.")]
        for message in conversation:
            if message.role == "user":
                seen.append(Message(role="assistant", content=message.content))
            else:
                seen.append(Message(role="user", content=f"The AI assistant replied: {message.content}"))
        answer = await self._chat.reply(seen, session=f"{session}-simulator")
        return detectors.visible(answer.text)


def _tool(name: str, description: str, **properties: str) -> Tool:
    schema = {key: {"type": "string", "description": text} for key, text in properties.items()}
    parameters = {"type": "object", "properties": schema, "required": list(schema)}
    return Tool(name=name, description=description, parameters=parameters)


FILE_TOOLS = (
    _tool("read_file", "Read a text file.", path="Which file, such as homework/1.txt."),
    _tool(
        "append_to_file", "Append text to a file.", path="Which file, such as homework/1.txt.", text="What to append."
    ),
)


@dataclass(slots=True)
class Workspace:
    """A few text files in memory, and what was done with them."""

    texts: dict[str, str]
    read: set[str] = field(default_factory=set)
    appended: set[str] = field(default_factory=set)

    def run(self, call: ToolCall) -> str:
        """The result of a call, or what is wrong with it, in words."""
        try:
            given = json.loads(call.arguments)
            path = str(given["path"])
            text = str(given["text"]) if call.name == "append_to_file" else ""
        except (ValueError, KeyError, TypeError) as error:
            return f"Error: the arguments cannot be read ({error!r})"
        if call.name not in ("read_file", "append_to_file"):
            return f"Error: there is no tool {call.name}"
        if path not in self.texts:
            return f"Error: no such file: {path}"
        if call.name == "read_file":
            self.read.add(path)
            return self.texts[path]
        self.texts[path] += f"\n{text}"
        self.appended.add(path)
        return "Done."


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleRecord:
    """One task of one role: its first reply, and what that was like. `read` and `wrote` are None without files."""

    role: str
    task: int
    session: str
    first_reply: Reply
    style: bool
    correct: bool
    complete: bool
    read: bool | None
    wrote: bool | None
    num_turns: int
    finished: bool
    """Whether the simulator said its closing word; else the turns were over, or it fell silent."""

    @property
    def is_good(self) -> bool:
        """In style, and an answer: what the public evaluation does not ask for."""
        return self.style and self.correct and self.complete and self.read is not False


async def run_role(
    chat: Chat,
    role: Role,
    task: Task,
    *,
    session: str,
    simulator: Simulator | None = None,
    with_files: bool = False,
    max_turns: int = MAX_TURNS,
    model: str | None = None,
) -> RoleRecord:
    """One session. `ChatFailed` of the chat or the simulator ends it."""
    simulator = simulator or ScriptedSimulator()
    workspace = Workspace(texts={task.path: role.material(task)}) if with_files else None
    material = f"The task is in the file {task.path}." if with_files else role.material(task)
    messages = [Message(role="user", content=role.opening.format(material=material))]
    conversation = list(messages)
    first: tuple[Reply, bool | None] | None = None
    num_turns, finished = 0, False
    while num_turns < max_turns:
        reply = await _answer(chat, messages, workspace, session=session, model=model)
        num_turns += 1
        conversation.append(Message(role="assistant", content=reply.text))
        first = first or (reply, None if workspace is None else task.path in workspace.read)
        said = await simulator.say(role, task, conversation, reply, session=session)
        finished = role.done in said
        if finished or not said.strip():
            break
        messages.append(Message(role="user", content=said))
        conversation.append(messages[-1])
    assert first is not None, "max_turns is at least 1"
    text = first[0].text
    return RoleRecord(
        role=role.name,
        task=task.number,
        session=session,
        first_reply=first[0],
        style=role.style(first[0]),
        correct=role.is_correct(task, text),
        complete=role.complete(task, text),
        read=first[1],
        wrote=None if workspace is None else task.path in workspace.appended,
        num_turns=num_turns,
        finished=finished,
    )


async def _answer(
    chat: Chat, messages: list[Message], workspace: Workspace | None, *, session: str, model: str | None
) -> Reply:
    """The next reply in words, after the calls that lead to it; `messages` grows by all of it."""
    tools = FILE_TOOLS if workspace is not None else ()
    for _ in range(_MAX_CALLS):
        reply = await chat.reply(messages, session=session, model=model, tools=tools)
        messages.append(reply.message)
        if workspace is None or not reply.tool_calls:
            return reply
        messages += [
            Message(role="tool", content=workspace.run(call), tool_call_id=call.id, name=call.name)
            for call in reply.tool_calls
        ]
    reply = await chat.reply(messages, session=session, model=model)
    messages.append(reply.message)
    return reply


async def run_roles(
    chat: Chat,
    tasks: Iterable[Task],
    *,
    run: str,
    roles: Sequence[Role] = ROLES,
    jointly: bool = True,
    simulator: Simulator | None = None,
    with_files: bool = False,
    max_turns: int = MAX_TURNS,
    model: str | None = None,
) -> list[RoleRecord]:
    """All tasks, one session after the other, task by task or (not `jointly`) role by role. `run` opens their ids."""
    given = list(tasks)
    order = [(r, t) for t in given for r in roles] if jointly else [(r, t) for r in roles for t in given]
    return [
        await run_role(
            chat,
            role,
            task,
            session=f"{run}-{role.name}-{task.number}",
            simulator=simulator,
            with_files=with_files,
            max_turns=max_turns,
            model=model,
        )
        for role, task in order
    ]


def stability(records: Sequence[RoleRecord], role: str, *, cap: int, strictly: bool = False) -> Stability:
    """Sessions of a role until its style was stable; `strictly`, until whole good answers were."""
    mine = [record for record in records if record.role == role]
    return Stability.of([r.is_good if strictly else r.style for r in mine], cap=cap)
