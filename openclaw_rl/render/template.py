"""The fallback for every other family: the model's own chat template, rendered to text and then encoded.

Nothing promises that a longer conversation begins like a shorter one, so there is no `bridge`. `render` splices in the
sampled ids of an answer if the template shows it exactly where the prompt for it ended; whoever compares the result
with the stored turn finds out whether it extends it or forks.

Special tokens in somebody's text are shielded before the template sees them and are encoded as plain text. A template
that knows no tools, or writes calls in a form that we cannot parse, gets them in Hermes form.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from openclaw_rl.errors import RequestError
from openclaw_rl.render.family import Family
from openclaw_rl.render.hermes import Hermes
from openclaw_rl.render.parsing import AnswerForm, StreamParser
from openclaw_rl.render.sandbox import ChatTemplate
from openclaw_rl.render.vocabulary import Vocabulary
from openclaw_rl.types import Json, Message, Tool, ToolArgumentsDelta, ToolCallStart

_SYSTEM = {"role": "system", "content": "Be brief."}
_USER = {"role": "user", "content": "Hello"}
_TOOL = Tool(name="probe", description="probe", parameters={"type": "object", "properties": {}})
_CALL = {"id": "probe0000", "type": "function", "function": {"name": "probe", "arguments": {"key": "value"}}}


class TemplateRenderer(Family):
    """`protocols.Renderer` over a chat template."""

    def __init__(self, vocabulary: Vocabulary, stop_token_ids: Sequence[int], template: ChatTemplate) -> None:
        plain, closed = (template.render([_USER], [], to_answer=to_answer) for to_answer in (True, False))
        self._template = template
        self._opening = plain[_common_length(plain, closed) :]
        self._knows_system = _renders(template, [_SYSTEM, _USER])
        self._native_calls = _native_calls(template)
        self._hermes = Hermes()
        self._nonce = secrets.token_hex(8)
        self._slots = re.compile(rf"\[{self._nonce}\.(\d+)\]")
        form = AnswerForm(
            thinks="</think>" in template.source,
            opens_thinking="<think>" in self._opening and "</think>" not in self._opening,
            calls=self._native_calls or "json",
        )
        super().__init__(vocabulary, stop_token_ids, form)

    def render(
        self, messages: Sequence[Message], tools: Sequence[Tool], sampled: Mapping[int, Sequence[int]]
    ) -> list[int]:
        """The whole conversation; an answer that cannot be put in its place is written anew from its text."""
        spliced = self._spliceable(messages, sampled)
        if spliced:
            try:
                ids = self._splice(self._text(messages, tools, spliced), spliced)
            except RequestError:  # the template wants to see something of the answers, such as their calls
                ids = None
            if ids is not None:
                return ids
        return list(self._vocabulary.encode_mixed(self._text(messages, tools, {})))

    def bridge(
        self,
        prompt_ids: Sequence[int],
        completion_ids: Sequence[int],
        messages: Sequence[Message],
        tools: Sequence[Tool],
    ) -> list[int] | None:
        """None: what a template makes of the new messages may depend on all the others."""
        return None

    def _spliceable(
        self, messages: Sequence[Message], sampled: Mapping[int, Sequence[int]]
    ) -> dict[int, Sequence[int]]:
        """Templates drop old thoughts when the user speaks again; answers that thought are left to them."""
        if not self._vocabulary.is_separable:
            return {}
        last_user = max((i for i, message in enumerate(messages) if message.role == "user"), default=-1)
        return {i: ids for i, ids in sorted(sampled.items()) if i > last_user or not messages[i].reasoning}

    def _splice(self, text: str, spliced: Mapping[int, Sequence[int]]) -> list[int] | None:
        """None unless every answer stands in `text` once, in order, and where the prompt for it ended."""
        first, *others = self._slots.split(text)  # text, number, text, number, …, text
        numbers, texts = [int(number) for number in others[::2]], others[1::2]
        if numbers != list(spliced) or not all(before.endswith(self._opening) for before in [first, *texts[:-1]]):
            return None
        ids = list(self._vocabulary.encode_mixed(first))
        for number, text_after in zip(numbers, texts, strict=True):
            answer_ids, following = spliced[number], self._vocabulary.encode_mixed(text_after)
            ids += answer_ids
            is_closed = bool(answer_ids) and answer_ids[-1] in self.stop_token_ids
            ids += following[1:] if is_closed and following[:1] == (answer_ids[-1],) else following
        return ids

    def _text(self, messages: Sequence[Message], tools: Sequence[Tool], spliced: Mapping[int, Sequence[int]]) -> str:
        shown = [
            Message(role="assistant", content=f"[{self._nonce}.{i}]") if i in spliced else self._shielded(message)
            for i, message in enumerate(messages)
        ]
        offered = self._shielded_tools(tools)
        if self._native_calls is None:
            shown, offered = self._hermes.lowered(shown, offered), []
        if not self._knows_system:
            shown = _without_system(shown)
        return self._template.render(
            [self._with_parsed_arguments(message) for message in shown], [tool.to_json() for tool in offered]
        )


def _common_length(one: str, other: str) -> int:
    differing = (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differing, min(len(one), len(other)))


def _renders(template: ChatTemplate, messages: Sequence[Mapping[str, Json]]) -> bool:
    try:
        template.render(messages, [])
    except RequestError:
        return False
    return True


def _native_calls(template: ChatTemplate) -> Literal["json", "xml"] | None:
    """The form in which the template itself writes calls, if our parsers can read that form back."""
    assistant = {"role": "assistant", "content": "", "tool_calls": [_CALL]}
    try:
        text = template.render([_USER, assistant], [_TOOL.to_json()])
    except RequestError:
        return None
    forms: tuple[Literal["json", "xml"], ...] = ("json", "xml")
    for form in forms:
        parser = StreamParser(AnswerForm(calls=form), [_TOOL])
        events = [*parser.feed(text), *parser.finish()]
        found = [event.index for event in events if isinstance(event, ToolCallStart) and event.name == "probe"]
        if found and ToolArgumentsDelta(found[0], '{"key": "value"}') in events:
            return form
    return None


def _without_system(messages: Sequence[Message]) -> list[Message]:
    """System messages moved to the head of the next message, for templates that refuse the role."""
    out: list[Message] = []
    waiting: list[str] = []
    for message in messages:
        if message.role == "system":
            waiting.append(message.content)
        else:
            out.append(replace(message, content="\n\n".join([*waiting, message.content])) if waiting else message)
            waiting = []
    return out
