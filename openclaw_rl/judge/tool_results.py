"""Tool results -> whether each call worked, and which rule of the tool's schema a failed call broke.

A result is an error where it says so of itself: an exit code, an error field, a traceback or a message that opens or
closes it, a summary of failed tests. Text that merely mentions errors (a file that was read, lines that were found) is
not. Of calls that only read, nothing but a message of failure in place of the text counts. The expressions are in
tool_results.toml.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Literal

from openclaw_rl.types.learning import Evidence
from openclaw_rl.types.messages import Json, Message, Tool, ToolCall

Kind = Literal["error", "success", "empty"]

MAX_HEAD, MAX_TAIL, MAX_LINE = 800, 1600, 300
"""Characters of the beginning, the end and each line of a result that are read: there it tells how it went."""
MAX_MESSAGE_WORDS = 14
"""A message of failure is short; longer texts tell of failures without being one."""
MAX_JSON = 200_000
"""Characters; nobody reports a failure in a longer object."""

FAILED_TESTS, PASSED_TESTS = "failed tests", "passed tests"

_ANY_CASE = frozenset({"reads", "exit", "clean", "opens", "tells_failure", "refused", "nothing_found", "at_fault"})
_HEADING = re.compile(r"#{1,6} \S.*\n")
_BLOCK = re.compile(r"(?ms)^ {0,3}```.*?(?:^ {0,3}```[ \t]*$|\Z)")
_SPAN = re.compile(r"(?<=\w )`[^`\n]+`|`[^`\n]+`(?=,? [a-z])")
_ORNAMENT = " \t\n*:>-❌⚠✗×✖!"
_BAD_WORDS = frozenset({"error", "failed", "failure", "fail", "errored", "exception", "timeout", "denied", "rejected"})
_NO_ERROR = frozenset({"none", "null", "false", "0", "no", "no error", "ok", "success", ""})
_WRAPPERS = ("result", "data", "response", "output", "body", "content")


@dataclass(frozen=True, slots=True)
class Result:
    """How one call went, and by which rule."""

    kind: Kind
    rule: str
    hint: str = ""
    """What the offered schemas said of the call before it was made."""


def read_result(message: Message, evidence: Evidence, *, caller: Message | None = None) -> Result:
    """How the call that this message answers went; the reply made it, or an earlier `caller`."""
    text = _ends(message.content.strip())
    if not text:
        return Result("empty", "no output")
    call = _call_of(message, (caller or evidence.reply).tool_calls)
    kind, rule = _of_json(message.content) or (_of_reading(text) if _only_reads(message, call) else _of_text(text))
    return Result(kind, rule, schema_hint(text, call, evidence.tools) if kind == "error" else "")


def is_at_fault(message: Message) -> bool:
    """Whether an error says that the call itself was wrong: its name, its arguments, or what it names."""
    return bool(_says("at_fault").search(_ends(message.content.strip())))


def calls_made(messages: Sequence[Message]) -> Iterator[tuple[Message, ToolCall, Message | None]]:
    """Each call of these messages, with who made it and what it returned. Ids count up to the next reply."""
    for place, caller in enumerate(messages):
        if caller.tool_calls:
            results = list(takewhile(lambda m: m.role != "assistant", messages[place + 1 :]))
            for call in caller.tool_calls:
                answers = (m for m in results if m.role == "tool" and _call_of(m, caller.tool_calls) == call)
                yield caller, call, next(answers, None)


def only_reads(call: ToolCall) -> bool:
    """Whether a call leaves everything as it is, by its name or its command."""
    return bool(_says("reads").match(call.name)) or bool(_says("reading_command").search(call.arguments))


def _ends(text: str) -> str:
    if len(text) > MAX_HEAD + MAX_TAIL:
        text = f"{text[:MAX_HEAD]}\n{text[-MAX_TAIL:]}"
    return "\n".join(line[:MAX_LINE] for line in text.splitlines())


def _unquoted(text: str) -> str:
    """A text without what it quotes: code in a sentence, and the blocks of a document with headings."""
    if _HEADING.match(text):
        text = _BLOCK.sub("", text)
    return _SPAN.sub("...", text)


def _of_reading(text: str) -> tuple[Kind, str]:
    if _HEADING.match(text):
        return "success", "output"
    if _says("nothing_found").match(text):
        return "empty", "nothing found"
    short = len(text) <= 400 and text.count("\n") <= 3
    if short and (_opens(text) or (_says("closes").search(text) and not _says("located").match(text))):
        return "error", "error message"
    return "success", "output"


def _of_text(text: str) -> tuple[Kind, str]:
    low = text.lower()
    if not _has(low, "marks"):
        return "success", "output"
    located = bool(_says("located").match(text))
    exits = (
        [next(g for g in (*m.groups(), "1") if g) for m in _says("exit").finditer(text)]
        if _has(low, "exit_marks")
        else []
    )
    if exits and not located:
        return ("error", f"exit code {exits[-1]}") if int(exits[-1]) else ("success", "exit code 0")
    troubled = _has(low, "trouble_marks")
    plain = _unquoted(_says("clean").sub(" ", text)) if troubled else text
    crashed = troubled and bool(_says("crashed").search(plain))
    if located and not crashed:
        return "success", "output"
    if troubled and _says("failed_tests").search(plain):
        return "error", FAILED_TESTS
    if _says("passed_tests").search(text):
        return "success", PASSED_TESTS
    if crashed:
        return "error", "traceback"
    if _says("nothing_found").match(text):
        return "empty", "nothing found"
    return ("error", "error message") if _is_message(plain) else ("success", "output")


def _is_message(text: str) -> bool:
    """Whether the opening, the last lines, or a text of one or two short lines tell of a failure."""
    lines = text.strip().splitlines()
    told = _says("tells_failure" if len(text.split()) <= MAX_MESSAGE_WORDS else "refused")
    short = len(lines) <= 2 and bool(told.search(text))
    return short or _opens(text) or bool(_says("closes").search("\n".join((*lines[:2], *lines[-3:]))))


def _opens(text: str) -> bool:
    return bool(_says("opens").match(text.lstrip(_ORNAMENT)))


def _of_json(text: str) -> tuple[Kind, str] | None:
    """What a JSON object says of itself; None where it is none."""
    if not text.lstrip().startswith("{") or len(text) > MAX_JSON:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    objects = [value, *(value[key] for key in _WRAPPERS if isinstance(value.get(key), Mapping))]
    rule = next((rule for each in objects if (rule := _fault(each))), "")
    return ("error", rule) if rule else ("success", "output")


def _fault(value: Mapping[str, Json]) -> str:
    """The field by which an object says that something failed; empty when it does not."""
    for key, content in value.items():
        said = str(content).lower()
        match key.lower().replace("_", "").replace("-", ""):
            case "exitcode" | "returncode" | "exitstatus" | "rc":
                wrong = said not in ("0", "0.0", "", "false", "none")
            case "error" | "errors" | "exception" | "traceback" | "errormessage" | "iserror" | "timedout":
                wrong = bool(content) and said not in _NO_ERROR
            case "success" | "ok" | "succeeded":
                wrong = said in ("false", "no")
            case "status" | "statuscode" | "httpstatus" | "code" | "httpcode" | "state" | "result" | "conclusion":
                wrong = said in _BAD_WORDS or (said.isascii() and said.isdigit() and 400 <= int(said[:9]) <= 599)
            case "failed" | "failures" | "numfailed":
                wrong = isinstance(content, int) and content > 0
            case _:
                wrong = False
        if wrong:
            return f"field {key}"
    return ""


def _call_of(message: Message, calls: Sequence[ToolCall]) -> ToolCall | None:
    for call in calls:
        if message.tool_call_id is not None and call.id == message.tool_call_id:
            return call
    return calls[0] if len(calls) == 1 else None


def _only_reads(message: Message, call: ToolCall | None) -> bool:
    return only_reads(call or ToolCall(id="", name=message.name or "", arguments=""))


def schema_hint(text: str, call: ToolCall | None, tools: Sequence[Tool]) -> str:
    """What an error says about the call that the offered schemas said before it; empty where it is news."""
    offered = {tool.name: tool for tool in tools}
    unknown = _says("unknown_tool").search(text)
    if unknown and offered and (name := _first_group(unknown)) not in offered:
        return f"Call only tools that are offered; `{name}` is not one of them."
    if call is None or call.name not in offered:
        return ""
    properties = offered[call.name].parameters.get("properties") or {}
    for name in map(_first_group, _says("required").finditer(text)):
        if name in properties:
            return f"Pass the required argument `{name}` when calling `{call.name}`."
    for name in map(_first_group, _says("unexpected").finditer(text)):
        if name not in properties:
            return f"Call `{call.name}` without `{name}`: its schema has no such argument."
    return ""


def _first_group(match: re.Match[str]) -> str:
    return next(group for group in match.groups() if group)


_WORDS: Mapping[str, list[str]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


@cache
def _says(name: str) -> re.Pattern[str]:
    """One expression for a list of tool_results.toml."""
    any_case = re.IGNORECASE if name in _ANY_CASE else 0
    return re.compile("|".join(f"(?:{p})" for p in _WORDS[name]), re.MULTILINE | any_case)


def _has(low: str, name: str) -> bool:
    """A look before the search: the expressions are slow where there is nothing to find."""
    return any(mark in low for mark in _WORDS[name])
