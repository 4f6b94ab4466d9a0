"""What an answer carries so that it can be read when it comes back: names of responses, sealed thinking, tool names.

Clients return these as they got them and are told that they are opaque. Nothing here is a secret from them, and nothing
is believed that would matter: an id says which turn of their own it names, and sealed thinking is the model's thinking.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b

import orjson

from openclaw_rl.errors import RequestError
from openclaw_rl.types import Json, Tool, split_turn_id

_RESPONSE = "resp_"
_INSTRUCTED, _NOT_KEPT = 1, 2
"""What a name tells beside the turn. The second stands in names of an older release, which knew it from there alone."""
_SEAL = "ocrl1."
_NAMESPACE = "::"
_FREE_FORM: Mapping[str, Json] = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The whole input of this free-form tool."}},
    "required": ["input"],
    "additionalProperties": False,
}
"""Marks a tool as one that takes free text: the model is shown a function with this one argument."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseName:
    """The turn that a response is kept as, and whether its first message was its `instructions`, which nobody inherits.

    Turns of all dialects are stored alike, so the latter is known to the name alone.
    """

    turn_id: str
    instructed: bool = False

    def __str__(self) -> str:
        return _RESPONSE + _encoded(f"{_INSTRUCTED * self.instructed}{self.turn_id}")

    @classmethod
    def parse(cls, text: str, param: str | None = None) -> ResponseName:
        """The inverse of `str`; a 404 if there can be no response of this name."""
        name = _decoded(text.removeprefix(_RESPONSE)) if text.startswith(_RESPONSE) else None
        if name is None or name[:1] not in ("0", "1", "2", "3"):
            raise no_response(param)
        try:
            split_turn_id(name[1:])
        except ValueError:
            raise no_response(param) from None
        flags = int(name[0])
        if flags & _NOT_KEPT:
            raise not_kept(param)
        return cls(turn_id=name[1:], instructed=bool(flags & _INSTRUCTED))


def no_response(param: str | None) -> RequestError:
    """The same for a name that means nothing and for a response of somebody else."""
    return RequestError(
        "there is no such response of yours; send the whole conversation", status=404, param=param, code="not_found"
    )


def not_kept(param: str | None) -> RequestError:
    """A response that the client did not wish to be kept."""
    return RequestError(
        "that response was made with store: false; send the whole conversation",
        status=404,
        param=param,
        code="not_found",
    )


def item_id(prefix: str, turn_id: str, index: int) -> str:
    """The id of output item `index`; the same whenever the turn is written down."""
    return f"{prefix}_{blake2b(turn_id.encode(), digest_size=12).hexdigest()}{index:02x}"


def sealed(reasoning: str) -> str:
    """Thinking as `encrypted_content`, for clients that send back nothing else of it."""
    return _SEAL + _encoded(reasoning)


def unsealed(text: str | None) -> str:
    """The thinking in it; nothing if another server sealed it."""
    return _decoded(text.removeprefix(_SEAL)) or "" if text is not None and text.startswith(_SEAL) else ""


def free_form_tool(name: str, description: str) -> Tool:
    return Tool(name=name, description=description, parameters=_FREE_FORM)


def is_free_form(tool: Tool) -> bool:
    return tool.parameters == _FREE_FORM


def free_form_arguments(text: str) -> str:
    """The arguments of the function that the model sees in place of a free-form tool."""
    return orjson.dumps({"input": text}).decode()


def free_form_input(arguments: str) -> str:
    """The inverse; arguments of any other form are handed over as they were sampled."""
    try:
        read = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return arguments
    text = read.get("input") if isinstance(read, dict) else None
    return text if isinstance(text, str) else arguments


def within_namespace(namespace: str | None, name: str) -> str:
    """The one name under which the model sees a tool."""
    return f"{namespace}{_NAMESPACE}{name}" if namespace else name


def split_namespace(shown: str) -> tuple[str | None, str]:
    """The inverse of `within_namespace`."""
    namespace, mark, name = shown.partition(_NAMESPACE)
    return (namespace, name) if mark and namespace and name else (None, shown)


def _encoded(text: str) -> str:
    return urlsafe_b64encode(text.encode("utf-8", "surrogatepass")).decode().rstrip("=")


def _decoded(text: str) -> str | None:
    try:
        raw = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        decoded = raw.decode()
    except (UnicodeError, binascii.Error):
        return None
    return decoded if _encoded(decoded) == text and "\x00" not in decoded else None
