"""What a reply shows of itself, before anybody is asked: Evidence -> findings, each of which makes its score -1.

    repeated   the same call again, with nothing new in between: no other call, no word of the person
    at fault   a call that failed because of how it was made: an unknown tool, a wrong argument or path
    cut        the answer ended at its length limit
    empty      neither words nor a call, or a call that carries nothing: `write` without content
    elsewhere  a call that writes to another file than the one that was asked for
    refused    an agent with tools says that it cannot, without having tried one, and the session ends there

They hold for every judge, and no vote changes them; an explicit score of the person does. A judge that reads only what
followed rewards a call for not failing, and a policy learns to repeat it. Nothing here makes +1. A refusal is one only
where nothing followed and tools were there: to refuse in a chat may be right, and a person who walks away from it is no
proof that it was wrong.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path, PurePosixPath

from openclaw_rl.judge.evidence import is_clipped
from openclaw_rl.judge.tool_results import calls_made, is_at_fault, only_reads, read_result
from openclaw_rl.types import CALLED_AGAIN, FINDING, Evidence, Json, Message, ToolCall, Verdict, Vote

Rule = Callable[[Evidence], str]
"""What it found, for people; empty where it found nothing."""


def find(evidence: Evidence) -> tuple[Vote, ...]:
    """A vote of -1 for each rule that applies."""
    return tuple(
        Vote(question="score", score=-1, raw=f"{FINDING}{found}") for rule in RULES if (found := rule(evidence))
    )


def verdict_of(votes: Sequence[Vote], *, read: Verdict | None = None) -> Verdict:
    """The verdict of findings, with the hints that were `read` in what a person said."""
    hinted = () if read is None else tuple(vote for vote in read.votes if vote.question != "score")
    reason = "; ".join(vote.raw for vote in votes)
    hints = () if read is None else read.hints
    return Verdict(outcome="scored", score=-1, reason=reason, votes=(*votes, *hinted), hints=hints)


def repeated(evidence: Evidence) -> str:
    """A call that was made before, with the same arguments and nothing but repeats in between.

    To try again is right where the first try failed through no fault of its own: a timeout, a server that is down.
    """
    known: dict[tuple[str, str], Message | None] = {}
    for caller, call, result in calls_made(evidence.request):
        key = _key(call)
        if key not in known:
            known = {**(known if only_reads(call) else {}), key: result}
            if result is not None and _is_error(result, caller, evidence) and not is_at_fault(result):
                del known[key]
    for _, call, result in _calls_of_reply(evidence):
        key = _key(call)
        earlier = known.get(key)
        is_news = result is not None and earlier is not None and result.content != earlier.content
        if key in known and not is_news and not is_clipped(call.arguments):
            return f"{call.name}{CALLED_AGAIN}"
        known[key] = None
    return ""


def at_fault(evidence: Evidence) -> str:
    """A call that failed by what it asked for. Where a person speaks, it is they who say how the reply was."""
    if any(message.role == "user" for message in evidence.following):
        return ""
    for caller, call, result in _calls_of_reply(evidence):
        if result is not None and is_at_fault(result) and _is_error(result, caller, evidence):
            return f"{call.name} failed by how it was called"
    return ""


def cut(evidence: Evidence) -> str:
    """The answer ended where no more tokens were allowed."""
    return "the answer was cut at its length limit" if evidence.is_cut else ""


def empty(evidence: Evidence) -> str:
    """Nothing was said and nothing called, or what was called carries nothing."""
    reply = evidence.reply
    if not reply.content.strip() and not reply.tool_calls:
        return "the reply says nothing and calls nothing"
    for call in reply.tool_calls:
        arguments = _arguments(call)
        if arguments is None:
            continue
        tool = next((tool for tool in evidence.tools if tool.name == call.name), None)
        required = set((tool.parameters.get("required") or ()) if tool else ())
        blank = [key for key in arguments if key in required | _PAYLOADS and arguments[key] in ("", None)]
        if blank and not _says("empty_by_custom").search(_path_in(arguments)):
            return f"{call.name} was called with nothing in {blank[0]}"
    return ""


def elsewhere(evidence: Evidence) -> str:
    """A file is written under another name, of the same kind, than the one place that the person named for it."""
    asked = [path for m in evidence.request if m.role == "user" for path in _asked_targets(m.content)]
    if len(set(asked)) != 1:
        return ""
    target = PurePosixPath(asked[0])
    before = [call for message in evidence.request for call in message.tool_calls]
    made = list(_written((*before, *evidence.reply.tool_calls)))
    if any(_is_same(target, path) for _, path in made):
        return ""
    for call, path in _written(evidence.reply.tool_calls):
        if path.suffix == target.suffix:
            return f"{call.name} wrote to another file than the one that was asked for"
    return ""


def refused(evidence: Evidence) -> str:
    """At the end of a session: an agent that has tools and tried none says that it cannot."""
    tried = any(message.tool_calls for message in (*evidence.request, evidence.reply))
    if not evidence.is_last or not evidence.tools or tried:
        return ""
    opening = " ".join(evidence.reply.content[:300].lower().replace("’", "'").split())
    return "the reply refuses, without having tried a tool" if _says("refuses").search(opening) else ""


RULES: tuple[Rule, ...] = (repeated, at_fault, cut, empty, elsewhere, refused)


def _key(call: ToolCall) -> tuple[str, str]:
    """A call's name and arguments, whatever the order and spacing of its JSON."""
    try:
        arguments = json.dumps(json.loads(call.arguments), sort_keys=True)
    except (ValueError, RecursionError):
        arguments = call.arguments.strip()
    return call.name, arguments


def _calls_of_reply(evidence: Evidence) -> Iterator[tuple[Message, ToolCall, Message | None]]:
    return calls_made((evidence.reply, *evidence.following))


def _is_error(result: Message, caller: Message, evidence: Evidence) -> bool:
    return read_result(result, evidence, caller=caller).kind == "error"


def _arguments(call: ToolCall) -> Mapping[str, Json] | None:
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return None
    return arguments if isinstance(arguments, Mapping) else None


def _written(calls: Sequence[ToolCall]) -> Iterator[tuple[ToolCall, PurePosixPath]]:
    """The calls that write a file, and where."""
    for call in calls:
        if _says("writes").match(call.name) and (path := _path_in(_arguments(call) or {})):
            yield call, PurePosixPath(path)


def _path_in(arguments: Mapping[str, Json]) -> str:
    return next((str(arguments[key]) for key in _TARGETS if isinstance(arguments.get(key), str)), "")


def _asked_targets(text: str) -> Iterator[str]:
    """The files that a person names as the place to write to."""
    for match in _says("asked_target").finditer(text):
        yield next(group for group in match.groups() if group).rstrip(".")


def _is_same(target: PurePosixPath, path: PurePosixPath) -> bool:
    """Whether one is the end of the other: the folder may be left out on either side."""
    short, long = sorted((target.parts, path.parts), key=len)
    return long[len(long) - len(short) :] == short


_WORDS: Mapping[str, list[str]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_PAYLOADS = frozenset(_WORDS["payloads"])
_TARGETS = tuple(_WORDS["targets"])


@cache
def _says(name: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in _WORDS[name]), re.IGNORECASE)
