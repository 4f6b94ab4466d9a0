"""A recorded turn and what followed it, or a line of JSON -> the `Evidence` that a judge sees.

Bounded whatever a conversation holds: `max_chars` is the room for all of the history, for everything that follows the
user's message within the request, and for each single text of the rest. What is left out is named where it stood. It
knows nothing of stores, prompts and verdicts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from openclaw_rl.types import (
    LOCAL_USER,
    ROLES,
    Evidence,
    Feedback,
    Json,
    Message,
    NextState,
    Role,
    Tool,
    ToolCall,
    Turn,
)

MAX_CHARS = 8000
"""The room where nobody says otherwise; `evaluation.judge_history_chars` does."""

_SYSTEM_PART = 8
"""The system prompt of an agent has ten thousand characters about its tools: it gets an eighth of the history."""
_LONG_PART = 4
"""One message of the history gets at most a quarter of it, so that the tail is never a single pasted file."""
_SHORTEST_RESULT = 200
_LEFT_OUT = "characters left out"


def build_evidence(
    turn: Turn,
    next_state: NextState | None,
    feedback: Sequence[Feedback],
    *,
    main_line: Collection[Role],
    side: Collection[Role] = (),
    max_chars: int,
    is_last: bool = False,
) -> Evidence | None:
    """What a judge sees of the turn; None when nothing that followed counts as feedback, unless the turn `is_last`.

    Messages of the `main_line` count, and tool results wherever they stand: they are what the reply's calls led to.
    Other roles in `side` are shown beside them, and roles in neither are left out, as is feedback on other turns.
    """
    following = tuple(m for m in (next_state.messages if next_state else ()) if m.role in {*main_line, *side})
    if not any(m.role in {*main_line, "tool"} for m in following):
        following = ()
    said = tuple(f for f in feedback if (f.session, f.index) == (turn.session, turn.index))
    if not following and not said and not is_last:
        return None
    evidence = _evidence(
        turn.messages, turn.message, following, tools=turn.tools, feedback=said, max_chars=max_chars, is_last=is_last
    )
    return replace(evidence, is_cut=turn.completion.finish_reason == "length")


def evidence_from_json(raw: Json, *, max_chars: int = MAX_CHARS) -> Evidence:
    """The evidence in one line `{request, reply, next: [{role, content}, …]}`; ValueError says what is wrong with it.

    `request` is a text, a message, or the whole conversation up to the reply; `reply` a text or an assistant message.
    `tools` (as in a chat completion), `feedback` (`[{score, text}, …]`) and `cut` (true where the reply ended at its
    length limit) may be there.
    """
    if not isinstance(raw, Mapping):
        raise ValueError(f"a line is an object with request, reply and next; got {_kind(raw)}")
    known = ("request", "reply", "next", "tools", "feedback", "cut")
    if unknown := sorted(set(map(str, raw)) - set(known)):
        raise ValueError(f"unknown key {unknown[0]!r}; a line has {', '.join(known)}")
    if "request" not in raw or "reply" not in raw:
        raise ValueError(f"{'request' if 'request' not in raw else 'reply'} is missing")
    request = raw["request"]
    if isinstance(request, Sequence) and not isinstance(request, str):
        messages = tuple(_message(m, f"request[{i}]") for i, m in enumerate(request))
    else:
        messages = (_message(request, "request", role="user"),)
    if not messages:
        raise ValueError("request is empty; it holds at least the message that the reply answers")
    reply = _message(raw["reply"], "reply", role="assistant")
    following = tuple(_message(m, f"next[{i}]") for i, m in enumerate(_list(raw, "next")))
    said = tuple(_feedback(f, i) for i, f in enumerate(_list(raw, "feedback")))
    tools = tuple(_tool(t, f"tools[{i}]") for i, t in enumerate(_list(raw, "tools")))
    if not following and not said:
        raise ValueError("next is empty: name at least one message that followed the reply, or feedback")
    evidence = _evidence(messages, reply, following, tools=tools, feedback=said, max_chars=max_chars)
    return replace(evidence, is_cut=raw.get("cut") is True)


def clip(text: str, max_chars: int) -> str:
    """The text, or its beginning and its end around a note of how much is missing; never longer than `max_chars`."""
    if len(text) <= max_chars:
        return text
    note = f" […{len(text) - max_chars} {_LEFT_OUT}…] "
    room = max_chars - len(note)
    if room < 2:
        return text[:max_chars]
    return text[: room - room // 2] + note + text[len(text) - room // 2 :]


def is_clipped(text: str) -> bool:
    """Whether a part of the text may have been left out by `clip`."""
    return _LEFT_OUT in text


def _evidence(
    messages: Sequence[Message],
    reply: Message,
    following: Sequence[Message],
    *,
    tools: tuple[Tool, ...],
    feedback: tuple[Feedback, ...],
    max_chars: int,
    is_last: bool = False,
) -> Evidence:
    # Tool calls and results after the user's message are one answer in the making: they belong to the request.
    begin = max((i for i, m in enumerate(messages) if m.role == "user"), default=0)
    asked, loop = messages[begin], messages[begin + 1 :]
    num_results = max(1, sum(m.role != "user" for m in following))
    result_chars = max(_SHORTEST_RESULT, max_chars // num_results)
    return Evidence(
        request=(_shorten(asked, max_chars), *_tail(loop, max_chars)),
        reply=_shorten(reply, max_chars),
        following=tuple(_shorten(m, max_chars if m.role == "user" else result_chars) for m in following),
        history=_history(messages[:begin], max_chars),
        tools=tools,
        feedback=feedback,
        is_last=is_last,
    )


def _history(messages: Sequence[Message], max_chars: int) -> tuple[Message, ...]:
    """The system prompt, shortened, and the tail of the rest, without thoughts."""
    spoken = [replace(m, reasoning="") for m in messages]
    head: tuple[Message, ...] = ()
    if spoken and spoken[0].role == "system":
        head = (_shorten(spoken.pop(0), max_chars // _SYSTEM_PART),)
    return head + _tail(spoken, max_chars - sum(map(_size, head)))


def _tail(messages: Sequence[Message], max_chars: int) -> tuple[Message, ...]:
    """The last messages that fit, with a note where the others were."""
    kept: list[Message] = []
    room = max_chars
    for message in reversed(messages):
        short = _shorten(message, max_chars // _LONG_PART)
        note = _left_out(len(messages) - len(kept) - 1)
        if _size(short) + (_size(note) if len(kept) + 1 < len(messages) else 0) > room:
            break
        kept.append(short)
        room -= _size(short)
    missing = len(messages) - len(kept)
    note = _left_out(missing)
    if missing and _size(note) <= room:
        kept.append(note)
    return tuple(reversed(kept))


def _left_out(count: int) -> Message:
    return Message(role="system", content=f"[{count} {'message' if count == 1 else 'messages'} left out here]")


def _shorten(message: Message, max_chars: int) -> Message:
    """The message with its content, its thoughts, and all its calls together clipped to `max_chars` each."""
    calls = message.tool_calls
    call_chars = max_chars // max(1, len(calls))
    return replace(
        message,
        content=clip(message.content, max_chars),
        reasoning=clip(message.reasoning, max_chars),
        tool_calls=tuple(replace(c, arguments=clip(c.arguments, call_chars)) for c in calls),
    )


def _size(message: Message) -> int:
    calls = sum(len(c.name) + len(c.arguments) for c in message.tool_calls)
    return len(message.content) + len(message.reasoning) + calls


def _list(raw: Mapping[str, Json], key: str) -> Sequence[Json]:
    value = raw.get(key) or ()
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ValueError(f"{key} is a list; got {_kind(value)}")
    return value


def _message(raw: Json, where: str, role: Role | None = None) -> Message:
    """A message as a chat completion writes it, or a text where `role` says whose it is."""
    if isinstance(raw, str) and role is not None:
        return Message(role=role, content=raw)
    if not isinstance(raw, Mapping):
        expected = "a message {role, content}" if role is None else "a text or a message {role, content}"
        raise ValueError(f"{where} is {expected}; got {_kind(raw)}")
    given = raw.get("role", role)
    if given not in ROLES:
        raise ValueError(f"{where}.role is one of {', '.join(ROLES)}; got {given!r}")
    if role == "assistant" and given != role:
        raise ValueError(f"{where} is what the assistant said; got role {given!r}")
    return Message(
        role=given,
        content=_text(raw.get("content"), f"{where}.content"),
        reasoning=_text(raw.get("reasoning_content"), f"{where}.reasoning_content"),
        tool_calls=tuple(_call(c, f"{where}.tool_calls[{i}]") for i, c in enumerate(_list(raw, "tool_calls"))),
        tool_call_id=_text(raw.get("tool_call_id"), f"{where}.tool_call_id") or None,
        name=_text(raw.get("name"), f"{where}.name") or None,
    )


def _text(raw: Json, where: str) -> str:
    """A text, nothing, or the text parts of a chat completion's content."""
    if raw is None or isinstance(raw, str):
        return raw or ""
    if isinstance(raw, Sequence) and all(isinstance(p, Mapping) and isinstance(p.get("text"), str) for p in raw):
        return "\n".join(part["text"] for part in raw)
    raise ValueError(f"{where} is a text; got {_kind(raw)}")


def _call(raw: Json, where: str) -> ToolCall:
    function = raw.get("function") if isinstance(raw, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise ValueError(f"{where} is {{id, function: {{name, arguments}}}}; got {_kind(raw)} without such a function")
    arguments = _text(function.get("arguments"), f"{where}.function.arguments")
    return ToolCall(id=_text(raw.get("id"), f"{where}.id"), name=function["name"], arguments=arguments)


def _tool(raw: Json, where: str) -> Tool:
    function = raw.get("function", raw) if isinstance(raw, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise ValueError(f"{where} is {{function: {{name, description, parameters}}}}; got {_kind(raw)} without a name")
    parameters = function.get("parameters") or {}
    if not isinstance(parameters, Mapping):
        raise ValueError(f"{where}.parameters is a JSON schema; got {_kind(parameters)}")
    description = _text(function.get("description"), f"{where}.description")
    return Tool(name=function["name"], description=description, parameters=parameters)


def _feedback(raw: Json, index: int) -> Feedback:
    if not isinstance(raw, Mapping):
        raise ValueError(f"feedback[{index}] is {{score, text}}; got {_kind(raw)}")
    score = raw.get("score")
    if score not in (None, -1, 0, 1) or isinstance(score, bool):
        raise ValueError(f"feedback[{index}].score is -1, 0 or 1; got {score!r}")
    text = _text(raw.get("text"), f"feedback[{index}].text")
    if score is None and not text:
        raise ValueError(f"feedback[{index}] needs a score or a text")
    return Feedback(session="offline", index=0, user=LOCAL_USER, given_at=float(index), score=score, text=text)


def _kind(value: Json) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "a truth value", type(None): "nothing"}
    return names.get(type(value), f"a {type(value).__name__}")
