"""`openclaw-rl chat`: lines from a person or a pipe to requests, and answers to the screen as they stream.

Knows the conversation as the messages sent so far, and the server as `GatewayClient`; how it looks is in `view.py`.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from openclaw_rl.cli.chat.lines import Mistake, Order, Rate, Say, read_line
from openclaw_rl.cli.chat.prompt import TypedLines, piped_lines
from openclaw_rl.cli.chat.view import View
from openclaw_rl.cli.client import ChatAnswer, GatewayClient, ServerRefused
from openclaw_rl.cli.screen import make_console
from openclaw_rl.errors import OpenClawError
from openclaw_rl.types import Json

CLIENT_NAME = "openclaw-rl-chat"


@dataclass(slots=True)
class Conversation:
    """What was said so far. `session` names it to the server, `last_turn` is the answer that /good and /bad mean.

    `private`: nothing of it is to be learned from, not even what was said before that was wished.
    """

    private: bool = False
    session: str = field(default_factory=lambda: f"chat-{secrets.token_hex(6)}")
    messages: list[dict[str, Json]] = field(default_factory=list)
    last_turn: str = ""


class ChatLoop:
    """One person, one server, one conversation at a time."""

    def __init__(self, client: GatewayClient, view: View) -> None:
        self._client = client
        self._view = view
        self._model = ""
        self._conversation = Conversation()
        self.num_failed = 0

    @property
    def is_private(self) -> bool:
        """Whether what is said now is not learned from."""
        return self._conversation.private

    async def connect(self) -> None:
        """Find out that the server is there and takes our key; raises if not."""
        waiting_for = await self._client.why_not_ready()
        try:
            self._model = (await self._client.models())[0]
        except ServerRefused as refusal:
            if refusal.status == 401:
                raise ServerRefused(f"{refusal}; give the right one with --key", status=401) from refusal
            raise
        self._view.welcome(self._model)
        if waiting_for is not None:
            self._view.note(f"The server is not ready yet ({waiting_for}); the first answer waits for it.")

    async def obey(self, line: str) -> bool:
        """Do what a line asks for. False if it stopped an answer (Ctrl-C), so that the person can be asked again."""
        try:
            match read_line(line):
                case Say(text):
                    return await self._say(text)
                case Rate() if self.is_private:
                    self._mistake("this conversation is private, so nothing is learned from it; /private leaves it")
                case Rate(rating, text) if self._conversation.last_turn:
                    await self._client.rate(self._conversation.last_turn, rating, text)
                    self._view.note(f"Noted for {self._conversation.last_turn}.")
                case Rate():
                    self._mistake("there is no answer yet to say that about")
                case Order("new"):
                    self._conversation = Conversation(private=self.is_private)
                    self._view.note("A new conversation" + (", private like the last." if self.is_private else "."))
                case Order("private"):
                    self._toggle_private()
                case Order("help"):
                    self._view.help()
                case Mistake(remedy):
                    self._mistake(remedy)
        except OpenClawError as error:
            self._mistake(str(error))
        return True

    async def _say(self, text: str) -> bool:
        """Ask, show, remember. What failed is forgotten, so that asking again is the same request to the server."""
        told = self._conversation
        asked = [*told.messages, {"role": "user", "content": text}]
        answer, started, stopped = ChatAnswer(), time.perf_counter(), False
        stream = self._client.ask(asked, model=self._model, session=told.session, answer=answer, private=told.private)
        try:
            with self._view.answering() as show:
                async with aclosing(stream) as deltas:
                    async for delta in deltas:
                        show(delta)
        except asyncio.CancelledError:
            stopped = True
        if answer.text or not stopped:
            told.messages = [*asked, {"role": "assistant", "content": answer.text}]
            told.last_turn = answer.turn_id
        self._view.footer(answer, seconds=time.perf_counter() - started, stopped=stopped, private=told.private)
        return not stopped

    def _toggle_private(self) -> None:
        """A session that was opted out stays so; whoever wants to be learned from again needs another one."""
        if self.is_private:
            self._conversation = Conversation()
            self._view.note("What was private stays private. A new conversation, and this one is learned from.")
            return
        self._conversation.private = True
        before = ", nor from what was said in it before; the server is told with your next message"
        self._view.note(
            f"Private: nothing is learned from this conversation{before if self._conversation.messages else ''}."
        )

    def _mistake(self, text: str) -> None:
        self.num_failed += 1
        self._view.problem(text)


def converse(chat: ChatLoop, lines: Iterable[str], *, on_stopped: Callable[[], None], runner: asyncio.Runner) -> int:
    """Go through all lines; how many of them failed.

    Ctrl-C reaches a running answer as a cancellation, by way of `asyncio.Runner`, and then `on_stopped` is called;
    between answers it is a matter of whoever yields the lines.
    """
    runner.run(chat.connect())
    for line in lines:
        if read_line(line) == Order("quit"):
            break
        if not runner.run(chat.obey(line)):
            on_stopped()
    return chat.num_failed


def run_chat(url: str, key: str | None, *, said: Callable[[], Sequence[str]] = tuple) -> int:
    """Chat until the person, or the pipe, has no more to say; the exit status. `said`: what the up key finds."""
    is_live = sys.stdin.isatty() and sys.stdout.isatty()
    view = View(make_console("stdout"), make_console("stderr"), live=is_live, url=url)
    with asyncio.Runner() as runner:
        client = runner.run(_connect(url, key))
        chat = ChatLoop(client, view)
        try:
            if is_live:
                typed = TypedLines(view, said=said(), is_private=lambda: chat.is_private)
                converse(chat, typed, on_stopped=typed.stopped, runner=runner)
                return 0
            failed = converse(chat, piped_lines(), on_stopped=_interrupt, runner=runner)
            return 1 if failed else 0
        finally:
            runner.run(client.close())


async def _connect(url: str, key: str | None) -> GatewayClient:
    return GatewayClient(url, key, name=CLIENT_NAME)


def _interrupt() -> None:
    raise KeyboardInterrupt
