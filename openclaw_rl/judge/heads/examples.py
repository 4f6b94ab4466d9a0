"""Labelled reactions, those that heads are fitted on and those they are checked by: what a line means, how it is read.

A line has what was `said` (user and assistant in turns, the reply last), what came `next`, and three labels: the score
of the reply by it, whether it holds a correction or a wish (`hint`), and whether it is about the matter, what is so,
rather than about form, person or task (`matter`; null where nobody said). `writer` tells who wrote it: whatever is
measured is measured on writers that were not learned from, and no writer of check.jsonl is in examples.jsonl.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from openclaw_rl.types import Evidence, Message, Score

FOLDER = Path(__file__).parent
EXAMPLES, CHECK = FOLDER / "examples.jsonl", FOLDER / "check.jsonl"

_TAIL = 300
"""Characters of the request and of the reply that are read, from their ends."""
_HEAD = 400
"""Characters of the reaction."""


@dataclass(frozen=True, slots=True)
class Said:
    """What is read: the last request, the reply, and what was said after it."""

    request: str
    reply: str
    said: str

    @property
    def prompt(self) -> str:
        """As the model reads it. The last token is the end of the reaction: there the model has read all of it."""
        return f"User: {self.request[-_TAIL:]}\n\nAssistant: {self.reply[-_TAIL:]}\n\nUser: {self.said[:_HEAD]}"

    @classmethod
    def of(cls, evidence: Evidence) -> Said:
        request = next((m.content for m in reversed(evidence.request) if m.role == "user"), "")
        return cls(request, evidence.reply.content, "\n".join(said_in(evidence)))


@dataclass(frozen=True, kw_only=True)
class Example:
    """A line of a file."""

    writer: str
    kind: str
    lang: str
    said: tuple[str, ...]
    next: str
    score: Score
    hint: bool
    matter: bool | None

    @cached_property
    def reaction(self) -> Said:
        return Said(self.said[-2], self.said[-1], self.next)

    @cached_property
    def evidence(self) -> Evidence:
        """The whole conversation, as a judge sees it."""
        spoken = [Message(role=("user", "assistant")[at % 2], content=text) for at, text in enumerate(self.said)]
        following = (Message(role="user", content=self.next),)
        return Evidence(history=tuple(spoken[:-2]), request=(spoken[-2],), reply=spoken[-1], following=following)


def said_in(evidence: Evidence) -> Sequence[str]:
    """What people wrote after the reply."""
    return [m.content for m in evidence.following if m.role == "user"] + [f.text for f in evidence.feedback if f.text]


def load(file: Path) -> list[Example]:
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [Example(**{**line, "said": tuple(line["said"])}) for line in lines]


def digest(file: Path) -> str:
    """As much of the checksum of a file as people compare."""
    return hashlib.sha256(file.read_bytes()).hexdigest()[:12]
