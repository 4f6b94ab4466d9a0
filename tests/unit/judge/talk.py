"""What tests of judges share: small conversations, and a model whose answers are written down."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from openclaw_rl.judge.model.panel import AskFailed
from openclaw_rl.types import Evidence, Feedback, Message, Role, Tool, ToolCall, VoteQuestion


def said(role: Role, content: str = "", **fields: object) -> Message:
    return Message(role=role, content=content, **fields)  # type: ignore[arg-type]


def talk(
    *following: Message | str,
    request: str = "Explain gravity.",
    reply: Message | str = "Gravity is a force between masses.",
    history: Sequence[Message] = (),
    tools: Sequence[Tool] = (),
    feedback: Sequence[Feedback] = (),
) -> Evidence:
    """Evidence in which texts are what the user said."""
    return Evidence(
        request=(said("user", request),),
        reply=said("assistant", reply) if isinstance(reply, str) else reply,
        following=tuple(said("user", m) if isinstance(m, str) else m for m in following),
        history=tuple(history),
        tools=tuple(tools),
        feedback=tuple(feedback),
    )


def called(name: str, arguments: str = "{}") -> Message:
    return said("assistant", tool_calls=(ToolCall(id="c1", name=name, arguments=arguments),))


def thumbs(score: int | None, text: str = "", *, at: float = 0.0) -> Feedback:
    return Feedback(session="s", index=0, user="u", given_at=at, score=score, text=text)  # type: ignore[arg-type]


class ScriptedAsker:
    """Answers by a function of the messages, the question and the seed; counts what is under way.

    The function may return the exception that is raised, or a pair of a delay in seconds and an answer.
    """

    def __init__(
        self, answer: Callable[[Sequence[Message], VoteQuestion, int], object], *, name: str = "scripted"
    ) -> None:
        self.name = name
        self._answer = answer
        self.asked: list[tuple[VoteQuestion, int]] = []
        self.messages: list[Sequence[Message]] = []
        self.num_running = self.max_running = self.num_cancelled = 0
        self.is_closed = False

    async def ask(self, messages: Sequence[Message], *, question: VoteQuestion, seed: int) -> str:
        self.asked.append((question, seed))
        self.messages.append(messages)
        self.num_running += 1
        self.max_running = max(self.max_running, self.num_running)
        try:
            answer = self._answer(messages, question, seed)
            delay_s, answer = answer if isinstance(answer, tuple) else (0.0, answer)
            await asyncio.sleep(delay_s)
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise
        finally:
            self.num_running -= 1
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, str)
        return answer

    async def close(self) -> None:
        self.is_closed = True


def votes(score: Sequence[int | str | tuple[float, int | str]], hint: Sequence[str] = ()) -> ScriptedAsker:
    """An asker whose votes are written down by seed: numbers are scores, texts of the score question are failures."""

    def answer(_: Sequence[Message], question: VoteQuestion, seed: int) -> object:
        if question == "hint":
            return hint[seed % len(hint)] if hint else r"\boxed{-1}"
        vote = score[seed]
        delay_s, vote = vote if isinstance(vote, tuple) else (0.0, vote)
        return delay_s, AskFailed(vote) if isinstance(vote, str) else f"because\n\\boxed{{{vote}}}"

    return ScriptedAsker(answer)


def hinting(hint: str) -> str:
    return f"The user wants a change.\n\\boxed{{1}}\n[HINT_START]\n{hint}\n[HINT_END]"
