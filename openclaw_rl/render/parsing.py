"""The text of an answer, as it grows, becomes visible text, reasoning and tool calls.

* `<think>…</think>` is looked for only at the start of the answer, and only for families that think; where the prompt
  already opened it, the answer starts inside.
* `<tool_call>` is looked for only when tools were offered. What does not become a call (no JSON object, no name) is
  visible text, exactly as sampled. A call that has been announced stays one: its arguments are delivered, whole or not.
* Newlines next to the thought inside its tags, after `</think>` and after a call are layout and are dropped; every
  other character outside the calls is delivered, and held back only while it may still begin a tag.

Knows no ids: control tokens that matter here arrive as text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

from openclaw_rl.render.calls import CallEvents, json_call, new_call_id, xml_call
from openclaw_rl.render.source import Source, Steps
from openclaw_rl.types import AnswerEvent, ReasoningDelta, TextDelta, Tool, ToolArgumentsDelta, ToolCallStart

CALL_OPEN, CALL_CLOSE = "<tool_call>", "</tool_call>"
_THINK_OPEN, _THINK_CLOSE = "<think>", "</think>"
_BLANKS = " \t\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerForm:
    """How a family writes its answers. `opens_thinking`: its prompts end with an open `<think>`.

    `calls`: `json` is `<tool_call>{"name": …, "arguments": …}</tool_call>`, `xml` is
    `<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>`.
    """

    thinks: bool = False
    opens_thinking: bool = False
    calls: Literal["json", "xml"] = "json"


class StreamParser:
    """`protocols.AnswerParser` for one answer. Text that was given instead of sampled is fed like the rest."""

    def __init__(self, form: AnswerForm, tools: Sequence[Tool] = (), new_id: Callable[[], str] = new_call_id) -> None:
        self._form = form
        self._tools = tuple(tools)
        self._source = Source()
        self._events: list[AnswerEvent] = []
        self._calls = CallEvents(self._events.append, new_id)
        self._drop_newlines = False
        self._held_newlines = ""
        self.num_closed_calls = 0
        """Tool calls that were written to their end."""
        self._steps = self._answer()
        next(self._steps)

    def feed(self, text: str) -> list[AnswerEvent]:
        """The events that `text` makes certain."""
        self._source.feed(text)
        next(self._steps)
        return self._drain()

    def finish(self) -> list[AnswerEvent]:
        """The events of what was held back; the answer is over."""
        self._source.is_ended = True
        for _ in self._steps:
            raise AssertionError("a grammar waited for text after the end")
        return self._drain()

    def _drain(self) -> list[AnswerEvent]:
        """What has gathered, with neighbours of one kind joined: each event becomes a chunk on the wire."""
        joined: list[AnswerEvent] = []
        for _, group in groupby(self._events, _kind):
            first, *others = group
            if others and not isinstance(first, ToolCallStart):
                texts = [event.text for event in others if not isinstance(event, ToolCallStart)]
                first = replace(first, text="".join([first.text, *texts]))
            joined.append(first)
        self._events.clear()
        return joined

    def _answer(self) -> Steps[None]:
        yield
        source = self._source
        if self._form.thinks and (self._form.opens_thinking or (yield from self._opens_thinking())):
            yield from self._reasoning()
        if not self._tools:
            yield from source.rest(self._visible)
            return
        while (yield from source.until(CALL_OPEN, self._visible)):
            source.hold()
            if (yield from self._call()):
                self._drop_newlines = True
            else:
                source.rollback()
                self._visible(CALL_OPEN)

    def _opens_thinking(self) -> Steps[bool]:
        self._source.hold()
        yield from self._source.skip(_BLANKS)
        if (yield from self._source.literal(_THINK_OPEN)):
            self._source.release()
            return True
        self._source.rollback()
        return False

    def _reasoning(self) -> Steps[None]:
        self._drop_newlines = True
        is_closed = yield from self._source.until(_THINK_CLOSE, self._thought)
        if self._held_newlines and not is_closed:
            self._events.append(ReasoningDelta(self._held_newlines))
        self._drop_newlines = True

    def _call(self) -> Steps[bool]:
        """Read one call after its opening tag; False, with nothing announced, if it is none."""
        source, calls = self._source, self._calls
        calls.begin(announced=source.release)
        if self._form.calls == "xml":
            yield from xml_call(source, calls, self._tools)
        else:
            yield from json_call(source, calls)
        if not calls.is_announced:
            return False
        source.hold()
        yield from source.skip(_BLANKS + "}")  # small models close one brace too many
        if (yield from source.literal(CALL_CLOSE)):
            source.release()
            self.num_closed_calls += 1
        else:
            source.rollback()
        return True

    def _visible(self, text: str) -> None:
        if self._drop_newlines:
            text = text.lstrip("\n")
        if text:
            self._drop_newlines = False
            self._events.append(TextDelta(text))

    def _thought(self, text: str) -> None:
        text = text.lstrip("\n") if self._drop_newlines else self._held_newlines + text
        kept = text.rstrip("\n")
        if kept:
            self._drop_newlines = False
            self._held_newlines = text[len(kept) :]
            self._events.append(ReasoningDelta(kept))
        elif not self._drop_newlines:
            self._held_newlines = text


def _kind(event: AnswerEvent) -> object:
    """Equal for events that may be joined."""
    match event:
        case ToolArgumentsDelta(index, _):
            return index
        case ToolCallStart(_, call_id, _):
            return call_id
        case _:
            return type(event)
