"""Evidence -> the messages that ask a model the two questions.

The instructions are prompts/score.txt and hint.txt; their first line is the version that judgements are stored with.
Every judged text stands in a fence of its own whose nonce nobody who wrote the text can know, and has its markers
neutralised. The nonce comes from the evidence and a secret: the same evidence makes the same prompt as long as the
secret lives, so that answers can be cached, and no two pieces of evidence share one.
"""

from __future__ import annotations

import hmac
import string
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources

from openclaw_rl.judge.evidence import clip
from openclaw_rl.judge.model.parsing import neutralise
from openclaw_rl.types import Evidence, Message, Tool, VoteQuestion

_MAX_TOOLS = 40
_DESCRIPTION_CHARS = 300
_REMINDERS: dict[VoteQuestion, str] = {
    "score": r"Score the reply by the next state. The last line is \boxed{1}, \boxed{-1} or \boxed{0}.",
    "hint": r"Does the next state hold a correction? End with \boxed{-1}, or with \boxed{1} and the hint in its marks.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionPrompt:
    """The instructions for one question; `$nonce` in `text` stands for the nonce."""

    version: str
    text: str


@cache
def load_prompt(question: VoteQuestion) -> QuestionPrompt:
    """The prompt file of a question."""
    file = resources.files("openclaw_rl.judge.model") / "prompts" / f"{question}.txt"
    head, _, text = file.read_text(encoding="utf-8").partition("\n")
    key, _, version = head.partition(": ")
    assert key == "version", f"{question}.txt begins with {head!r} instead of its version"
    return QuestionPrompt(version=version.strip(), text=text.strip())


def prompt_version() -> str:
    """What judgements of both questions are stored with."""
    return f"{load_prompt('score').version}+{load_prompt('hint').version}"


def nonce_of(evidence: Evidence, secret: bytes) -> str:
    """Twelve letters; no digits, which redaction might take for a number of somebody."""
    digest = hmac.digest(secret, repr(evidence).encode("utf-8", "surrogatepass"), "sha256")
    return "".join(string.ascii_lowercase[byte % 16] for byte in digest[:12])


def ask_about(evidence: Evidence, *, nonce: str) -> dict[VoteQuestion, tuple[Message, ...]]:
    """Both questions: the instructions, and the evidence piece by piece."""
    data = "\n\n".join(_fence(name, neutralise(text, nonce), nonce) for name, text in _pieces(evidence))
    return {question: _messages(question, data, nonce) for question in _REMINDERS}


def _messages(question: VoteQuestion, data: str, nonce: str) -> tuple[Message, ...]:
    instructions = string.Template(load_prompt(question).text).substitute(nonce=nonce)
    asked = f"{data}\n\n{_REMINDERS[question]}"
    return (Message(role="system", content=instructions), Message(role="user", content=asked))


def _fence(name: str, text: str, nonce: str) -> str:
    return f"<<<BEGIN {name} {nonce}>>>\n{text}\n<<<END {name} {nonce}>>>"


def _pieces(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """Every piece with the name of its fence. The names are ours alone: nothing that is judged is in one."""
    for number, message in enumerate(evidence.history, 1):
        yield from _message_pieces(f"earlier message {number}", message)
    for number, message in enumerate(evidence.request, 1):
        yield from _message_pieces(f"request {number}", message)
    if evidence.tools:
        yield "tools on offer", _tool_list(evidence.tools)
    yield from _message_pieces("reply", evidence.reply)
    for number, message in enumerate(evidence.following, 1):
        yield from _message_pieces(f"next state {number}", message)
    for number, feedback in enumerate(evidence.feedback, 1):
        score = "" if feedback.score is None else f"score {feedback.score:+d}\n"
        yield f"next state, explicit feedback {number}, role user", f"{score}{feedback.text}"


def _message_pieces(name: str, message: Message) -> Iterator[tuple[str, str]]:
    if message.reasoning:
        yield f"{name}, role {message.role}, thinking (not shown to the user)", message.reasoning
    if message.content or not (message.tool_calls or message.reasoning):
        yield f"{name}, role {message.role}", message.content or "(empty)"
    for number, call in enumerate(message.tool_calls, 1):
        yield f"{name}, role {message.role}, tool call {number}", f"{call.name}\n{call.arguments}"


def _tool_list(tools: tuple[Tool, ...]) -> str:
    lines = [f"{tool.name}: {clip(' '.join(tool.description.split()), _DESCRIPTION_CHARS)}" for tool in tools]
    if len(lines) > _MAX_TOOLS:
        lines[_MAX_TOOLS:] = [f"(and {len(lines) - _MAX_TOOLS} more)"]
    return "\n".join(lines)
