"""A model's own chat template, run as transformers runs it, but as the foreign code that it is.

Turns messages (as JSON objects) into text. The sandbox keeps templates from touching Python; the step limit stops one
that loops for ever, because nothing else could: every loop and macro counts its rounds. Does not know tokens.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import count
from typing import NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from openclaw_rl.errors import ModelError, RequestError
from openclaw_rl.types import Json

MAX_STEPS = 300_000
"""About a second; 4,096 messages take usual templates some 20,000."""

_STEP = "_count_step"


class ChatTemplate:
    """A compiled chat template. `constants` are what templates know of their tokenizer (`bos_token`, …)."""

    def __init__(self, source: str, constants: Mapping[str, str], model: str) -> None:
        self.source = source
        self._constants = dict(constants)
        self._model = model
        try:
            self._template = _environment().from_string(source)
        except TemplateError as error:
            raise ModelError(
                f"the chat template of {model} cannot be read: {error}. Repair its chat_template."
            ) from error

    def render(
        self, messages: Sequence[Mapping[str, Json]], tools: Sequence[Mapping[str, Json]], *, to_answer: bool = True
    ) -> str:
        """The conversation as text; `to_answer` ends it where the next answer begins."""
        steps = count(1)

        def count_step() -> str:
            if next(steps) > MAX_STEPS:
                raise TemplateError(f"it did not end within {MAX_STEPS:,} steps")
            return ""

        values = {"messages": list(messages), "tools": list(tools) or None, "add_generation_prompt": to_answer}
        try:
            return self._template.render(self._constants | values | {_STEP: count_step})
        except Exception as error:  # a boundary: templates are programs, and may fail in every way that Python can
            raise RequestError(
                f"the chat template of {self._model} cannot render these messages: {error}. Send the roles in the "
                "order that this model expects, or choose another model.",
                param="messages",
                code="chat_template",
            ) from error


class _CountingEnvironment(ImmutableSandboxedEnvironment):
    """Calls the step counter at the beginning of every round of a loop and every run of a macro."""

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        template = super()._parse(source, name, filename)
        for block in template.find_all((nodes.For, nodes.Macro, nodes.CallBlock)):
            step = nodes.Call(nodes.Name(_STEP, "load"), [], [], None, None)
            assert isinstance(block, nodes.For | nodes.Macro | nodes.CallBlock)
            block.body.insert(0, nodes.Output([step]))
        return template


class _Generation(Extension):
    """`{% generation %}`, by which templates point out what was sampled: here only its content matters."""

    tags = {"generation"}  # noqa: RUF012  jinja2 declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> ImmutableSandboxedEnvironment:
    # Autoescaping is for HTML; this text goes to a tokenizer.
    environment = _CountingEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _to_json(
    value: Json,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)
