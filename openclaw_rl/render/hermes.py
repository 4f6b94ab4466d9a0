"""Tools as text, in the form that Hermes and Qwen models read and write, for every model without a form of its own.

Offered tools go into the system message as JSON lines between `<tools>` tags, a call is
`<tool_call>{"name": …, "arguments": …}</tool_call>`, and results come back as `<tool_response>` in a user message.
Turns tools and messages into message texts; does not know how a chat is laid out, nor ids.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import groupby

import orjson

from openclaw_rl.render.cache import SizedCache
from openclaw_rl.types import Message, Tool

_HEADER = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
)
_FOOTER = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments "
    "within <tool_call></tool_call> XML tags:\n"
    '<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
)
_CACHE_BYTES = 8 * 2**20


class Hermes:
    """Message texts. `mark` makes control tokens of our tags, for models that have such; what it quotes stays text."""

    def __init__(self, mark: Callable[[str], str] = str) -> None:
        self._header = mark(_HEADER)
        self._footer = mark(_FOOTER)
        self._call = mark("<tool_call>\n"), mark("\n</tool_call>")
        self._response = mark("<tool_response>\n"), mark("\n</tool_response>")
        self._cache: SizedCache[bytes, str] = SizedCache(_CACHE_BYTES)

    def system(self, content: str, tools: Sequence[Tool]) -> str:
        """The system message that offers `tools`."""
        if not tools:
            return content
        return f"{content}\n\n{self._offer(tools)}" if content else self._offer(tools)

    def assistant(self, message: Message) -> str:
        """An answer with its calls; the arguments stay the JSON text that they are."""
        opening, closing = self._call
        calls = [
            f'{opening}{{"name": {json.dumps(call.name, ensure_ascii=False)}, "arguments": {call.arguments}}}{closing}'
            for call in message.tool_calls
        ]
        return "\n".join([message.content, *calls] if message.content else calls)

    def results(self, messages: Sequence[Message]) -> str:
        """The user message that brings the results of one or more calls, in their order."""
        opening, closing = self._response
        return "\n".join(f"{opening}{message.content}{closing}" for message in messages)

    def lowered(self, messages: Sequence[Message], tools: Sequence[Tool]) -> list[Message]:
        """The same conversation without tools, calls and results, for templates that know none."""
        out: list[Message] = []
        if tools and (not messages or messages[0].role != "system"):
            out.append(Message(role="system", content=self.system("", tools)))
        for is_result, group in groupby(messages, lambda message: message.role == "tool"):
            if is_result:
                out.append(Message(role="user", content=self.results(list(group))))
                continue
            for message in group:
                if message.role == "assistant":
                    out.append(Message(role="assistant", content=self.assistant(message), reasoning=message.reasoning))
                elif message.role == "system" and not out:
                    out.append(Message(role="system", content=self.system(message.content, tools)))
                else:
                    out.append(message)
        return out

    def _offer(self, tools: Sequence[Tool]) -> str:
        described = [tool.to_json() for tool in tools]
        key = orjson.dumps(described)  # ten times faster than the text, which must have json's own spacing
        offer = self._cache.get(key)
        if offer is None:
            lines = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in described)
            offer = f"{self._header}{lines}{self._footer}"
            self._cache.put(key, offer, len(key) + 4 * len(offer))
        return offer
