"""Conversations as the page lists and shows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from openclaw_rl.views.page.corrections import Correction


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationRow:
    id: str
    title: str
    """The beginning of the first thing that was said."""
    user: str
    client: str
    opened_at: float
    last_seen_at: float
    is_closed: bool
    is_private: bool
    """Nothing in it is learned from."""
    num_turns: int
    """Main turns: those that a person or a tool reacts to."""
    versions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationPage:
    items: tuple[ConversationRow, ...]
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallText:
    """A tool call; `arguments` is JSON as the model wrote it."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SaidText:
    """One message. All of it is text, and never markup of the page."""

    role: str
    text: str
    thinking: str
    calls: tuple[CallText, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What somebody said of an answer outright."""

    user: str
    at: float
    score: int | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTurn:
    """A request and its answer. Turns of one parent are alternatives: an edited question, or another answer."""

    id: str
    """SESSION.INDEX"""
    index: int
    parent: int | None
    """The index of the turn that it continues; null at the beginning of a conversation."""
    kind: Literal["main", "side"]
    asked: tuple[SaidText, ...]
    """What was new in the request: the person's words, or results of tools."""
    answer: SaidText
    version: str
    """The version that gave the answer."""
    versions: tuple[str, ...]
    """All of them, where the answer was continued by another one."""
    finish_reason: Literal["stop", "length", "tool_calls", "abort", "error"]
    num_tokens: int
    created_at: float
    finished_at: float
    is_private: bool
    feedback: tuple[Given, ...]
    correction: Correction | None
    """What became of what was said about this answer; null while nobody has said anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationDetail:
    """Turns in their order; `next` asks for earlier ones (`?before=NEXT`)."""

    session: ConversationRow
    turns: tuple[ChatTurn, ...]
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SayBody:
    """What a person says.

    A new conversation: `text` alone. The next message: `after` is the turn that it continues. An edited message:
    `after` is the parent of the edited turn, or null together with its `session` at the beginning. Another answer to
    the same question: `again` is the turn. Stop: end the request.
    """

    text: str = ""
    session: str | None = None
    after: str | None = None
    """SESSION.INDEX"""
    again: str | None = None
    """SESSION.INDEX"""
    private: bool = False
    """Nothing of this conversation is learned from."""
    beside: bool = False
    """With `again`: an answer to compare with, such as by the new version; nobody learns from it, and it is no part of
    the conversation."""
    version: str | None = None
    """Such as v3 or v0; null is the version that answers now."""
    max_tokens: int | None = None
    temperature: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerBegun:
    event: Literal["begun"] = "begun"
    turn: str
    session: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerText:
    """More of the answer, of its thinking, or of a tool call as it is written."""

    event: Literal["text", "thinking", "call"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerEnded:
    """The answer is complete and on disk."""

    event: Literal["ended"] = "ended"
    turn: str
    finish_reason: Literal["stop", "length", "tool_calls", "abort", "error"]
    num_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFailed:
    event: Literal["failed"] = "failed"
    message: str
    code: str
