"""What clients and models say to each other: messages, tools, requests, and answers while they stream."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self

from openclaw_rl.types.checks import require

Json = Any
"""A value that came from, or goes to, JSON."""

Role = Literal["system", "user", "assistant", "tool"]
ROLES: tuple[Role, ...] = ("system", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call that the model asks for. `arguments` is the JSON text exactly as it was sampled or sent."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a conversation, in the one form that all dialects are translated to."""

    role: Role
    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise ValueError(f"unknown role {self.role!r}; one of {', '.join(ROLES)}")

    def to_json(self) -> dict[str, Json]:
        """The message as OpenAI's chat dialect writes it, empty fields left out."""
        out: dict[str, Json] = {"role": self.role, "content": self.content}
        if self.reasoning:
            out["reasoning_content"] = self.reasoning
        if self.tool_calls:
            out["tool_calls"] = [
                {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
                for c in self.tool_calls
            ]
        if self.tool_call_id is not None:
            out["tool_call_id"] = self.tool_call_id
        if self.name is not None:
            out["name"] = self.name
        return out

    @classmethod
    def from_json(cls, raw: Mapping[str, Json]) -> Self:
        """The inverse of `to_json`; what a client sent is validated in `gateway/dialects`, not here."""
        return cls(
            role=raw["role"],
            content=raw.get("content") or "",
            reasoning=raw.get("reasoning_content") or "",
            tool_calls=tuple(
                ToolCall(id=c["id"], name=c["function"]["name"], arguments=c["function"]["arguments"])
                for c in raw.get("tool_calls") or ()
            ),
            tool_call_id=raw.get("tool_call_id"),
            name=raw.get("name"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function that the client offers to the model; `parameters` is its JSON schema."""

    name: str
    description: str = ""
    parameters: Mapping[str, Json] = field(default_factory=dict)

    def to_json(self) -> dict[str, Json]:
        """The tool as OpenAI's chat dialect writes it; model templates expect this very form."""
        return {
            "type": "function",
            "function": {"name": self.name, "description": self.description, "parameters": dict(self.parameters)},
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Json]) -> Self:
        """The inverse of `to_json`."""
        function = raw["function"]
        return cls(
            name=function["name"],
            description=function.get("description") or "",
            parameters=function.get("parameters") or {},
        )


SHAPING = frozenset(
    {"top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias"}
)
"""What cuts or bends the distribution beside the temperature."""

_UNSHAPED = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
_CUTS = frozenset({"top_p", "top_k", "min_p"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the next tokens are drawn. `temperature == 0` is greedy: its log-probs are recorded at T = 1."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    top_logprobs: int = 0

    def __post_init__(self) -> None:
        require(self.max_tokens >= 1, f"max_tokens must be at least 1, got {self.max_tokens}")
        require(0.0 <= self.temperature <= 2.0, f"temperature must lie in [0, 2], got {self.temperature}")
        require(0.0 < self.top_p <= 1.0, f"top_p must lie in (0, 1], got {self.top_p}")
        require(self.top_k >= 0, f"top_k must be 0 (off) or positive, got {self.top_k}")
        require(0.0 <= self.min_p <= 1.0, f"min_p must lie in [0, 1], got {self.min_p}")
        require(
            math.isfinite(self.repetition_penalty) and self.repetition_penalty > 0.0,
            f"repetition_penalty must be positive, got {self.repetition_penalty}",
        )
        for name in ("presence_penalty", "frequency_penalty"):
            value = getattr(self, name)
            require(-2.0 <= value <= 2.0, f"{name} must lie in [-2, 2], got {value}")
        require(all(map(math.isfinite, self.logit_bias.values())), "logit_bias must be finite")
        require(0 <= self.top_logprobs <= 20, f"top_logprobs must lie in [0, 20], got {self.top_logprobs}")

    @property
    def shaping(self) -> frozenset[str]:
        """Those of `SHAPING` that are in use. A cut leaves the most likely token, and so a greedy answer, as it is."""
        used = {name for name in SHAPING if getattr(self, name) not in (_UNSHAPED.get(name, 0.0), {})}
        return frozenset(used - _CUTS if self.temperature == 0.0 else used)

    def to_json(self) -> dict[str, Json]:
        """Every field under its own name; JSON object keys are strings, so `logit_bias` is keyed by text."""
        out: dict[str, Json] = {f.name: getattr(self, f.name) for f in fields(self)}
        out["logit_bias"] = {str(token): bias for token, bias in self.logit_bias.items()}
        return out

    @classmethod
    def from_json(cls, raw: Mapping[str, Json]) -> Self:
        """The inverse of `to_json`."""
        bias = {int(token): float(value) for token, value in (raw.get("logit_bias") or {}).items()}
        return cls(**{**raw, "logit_bias": bias})


ToolChoice = Literal["auto", "none", "required"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a client asked for, in any dialect. `retrievable`: the answer may be asked for again by its id."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = "auto"
    forced_tool: str | None = None
    parallel_tool_calls: bool = True
    sampling: Sampling
    stop: tuple[str, ...] = ()
    num_choices: int = 1
    model: str = ""
    retrievable: bool = True

    def __post_init__(self) -> None:
        require(bool(self.messages), "messages must not be empty")
        require(self.num_choices >= 1, f"n must be at least 1, got {self.num_choices}")
        require(
            self.forced_tool is None or any(t.name == self.forced_tool for t in self.tools),
            f"tool_choice names {self.forced_tool!r}, which is not among the tools",
        )


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More visible text."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of the model's thinking, which clients show apart or not at all."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallStart:
    """Tool call number `index` of this answer begins."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolArgumentsDelta:
    """More of the JSON text of the arguments of tool call `index`."""

    index: int
    text: str


AnswerEvent = TextDelta | ReasoningDelta | ToolCallStart | ToolArgumentsDelta
"""What an answer is made of while it streams."""


def events_of(message: Message) -> tuple[AnswerEvent, ...]:
    """An answer that is already whole, as the events that would have made it."""
    events: list[AnswerEvent] = []
    if message.reasoning:
        events.append(ReasoningDelta(message.reasoning))
    if message.content:
        events.append(TextDelta(message.content))
    for index, call in enumerate(message.tool_calls):
        events += (ToolCallStart(index, call.id, call.name), ToolArgumentsDelta(index, call.arguments))
    return tuple(events)
