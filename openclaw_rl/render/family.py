"""What all model families share: one vocabulary, the ids that end an answer, and the form of an answer.

Families differ in how they lay out a conversation, which is all that their own files are about.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from openclaw_rl.protocols import AnswerParser, TextDecoder
from openclaw_rl.render.parsing import AnswerForm, StreamParser
from openclaw_rl.render.vocabulary import Vocabulary
from openclaw_rl.types import Json, Message, Tool


class Family:
    """The half of `protocols.Renderer` that is the same for every family."""

    def __init__(self, vocabulary: Vocabulary, stop_token_ids: Sequence[int], form: AnswerForm) -> None:
        self.stop_token_ids = tuple(stop_token_ids)
        self.form = form
        self._vocabulary = vocabulary

    def prefill(self, tool: str | None) -> str:
        """The text that opens a tool call: of `tool`, or of any tool when None.

        It ends where tokenizers like to be cut: the blank before the arguments belongs to the model's next token.
        """
        thought = "\n</think>\n\n" if self.form.opens_thinking else ""
        if self.form.calls == "xml":
            return f"{thought}<tool_call>\n<function=" + ("" if tool is None else f"{tool}>\n")
        named = '"' if tool is None else f'{json.dumps(tool, ensure_ascii=False)}, "arguments":'
        return f'{thought}<tool_call>\n{{"name": {named}'

    def prefill_ids(self, tool: str | None) -> list[int]:
        """`prefill` with its tags as control tokens, for the models that have such."""
        return list(self._vocabulary.encode(self._vocabulary.mark(self.prefill(tool))))

    def encode(self, text: str) -> list[int]:
        """Plain text to ids; special tokens spelled out in it stay plain text."""
        return list(self._vocabulary.encode(text))

    def decode(self, token_ids: Sequence[int]) -> str:
        """Ids to text, without special tokens."""
        return self._vocabulary.decode(token_ids)

    def decoder(self) -> TextDecoder:
        """`decode` for ids that are still arriving."""
        return self._vocabulary.decoder()

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one id, as `logprobs` reports them."""
        return self._vocabulary.token_bytes(token_id)

    def parser(self, tools: Sequence[Tool]) -> AnswerParser:
        """A parser for one answer; calls are looked for only when `tools` were offered."""
        return StreamParser(self.form, tools)

    def _shielded(self, message: Message) -> Message:
        """`message` with texts that may be mixed with scaffolding before they are encoded."""
        shield = self._vocabulary.shield
        calls = tuple(replace(c, name=shield(c.name), arguments=shield(c.arguments)) for c in message.tool_calls)
        content, reasoning = shield(message.content), shield(message.reasoning)
        return replace(message, content=content, reasoning=reasoning, tool_calls=calls)

    def _shielded_tools(self, tools: Sequence[Tool]) -> list[Tool]:
        return [Tool.from_json(self._shielded_json(tool.to_json())) for tool in tools]

    def _shielded_json(self, value: Json) -> Json:
        match value:
            case str():
                return self._vocabulary.shield(value)
            case list():
                return [self._shielded_json(item) for item in value]
            case dict():
                return {self._vocabulary.shield(key): self._shielded_json(item) for key, item in value.items()}
            case _:
                return value

    def _with_parsed_arguments(self, message: Message) -> dict[str, Json]:
        """`message` as JSON, with the arguments of its calls as objects, which is how most templates want them."""
        raw = message.to_json()
        for call in raw.get("tool_calls", ()):
            function = call["function"]
            with suppress(ValueError, RecursionError):  # what is no JSON stays text
                function["arguments"] = self._shielded_json(json.loads(function["arguments"]))
        return raw
