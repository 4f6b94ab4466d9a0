"""Every noun of the pipeline, frozen and validated at birth.

The way of the data: a `Request` arrives, belongs to a `Session`, is answered by a `Completion`, and the two
together are a `Turn`. What arrives afterwards is the turn's `NextState` or explicit `Feedback`. This module
knows no HTTP, no SQL, no torch and no tokenizer: token ids are numbers here.

Worked example, two turns of one session on the base weights `v0`:

    Turn(session="s-5f1c", index=0, parent=None, prompt_ids=(1, 9690, ...), completion=Completion(
        token_ids=(19556, 17, 2), logprobs=(-0.41, -0.02, -0.01), finish_reason="stop",
        version_spans=(VersionSpan("v0", 0, 3),)))
    Turn(session="s-5f1c", index=1, parent=0, prompt_ids=(1, 9690, ..., 19556, 17, 2, 198, 1, ...), ...)

The second prompt starts with the first prompt followed by the first completion, id for id.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self

Json = Any
"""A value that came from, or goes to, JSON."""

Role = Literal["system", "user", "assistant", "tool"]
ROLES: tuple[Role, ...] = ("system", "user", "assistant", "tool")

TurnKind = Literal["main", "side"]
FinishReason = Literal["stop", "length", "tool_calls", "abort", "error"]

BASE_VERSION = "v0"
"""The label of the untouched base weights; the first update of a line makes `v1`."""


LOCAL_USER = "local"
"""The person whose machine this is; owner of the key that is made at first start."""


class Skip(enum.StrEnum):
    """Why a turn is kept as a conversation but never trained on."""

    SIDE_TURN = "side_turn"
    """Housekeeping of the client (a title, a summary, a heartbeat): nobody reacts to its answer."""
    ABORTED = "aborted"
    """The client went away before the end of the answer."""
    ENGINE_FAILED = "engine_failed"
    """The engine died or timed out and the answer could not be finished."""
    NO_NEXT_STATE = "no_next_state"
    """The session ended or expired before anything followed the answer."""
    NOT_EXACT = "not_exact"
    """The engine did not report one id and one log-prob per sampled token."""
    OPTED_OUT = "opted_out"
    """The session or its user asked not to be trained on."""


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
        _require(self.max_tokens >= 1, f"max_tokens must be at least 1, got {self.max_tokens}")
        _require(0.0 <= self.temperature <= 2.0, f"temperature must lie in [0, 2], got {self.temperature}")
        _require(0.0 < self.top_p <= 1.0, f"top_p must lie in (0, 1], got {self.top_p}")
        _require(self.top_k >= 0, f"top_k must be 0 (off) or positive, got {self.top_k}")
        _require(0.0 <= self.min_p <= 1.0, f"min_p must lie in [0, 1], got {self.min_p}")
        _require(
            math.isfinite(self.repetition_penalty) and self.repetition_penalty > 0.0,
            f"repetition_penalty must be positive, got {self.repetition_penalty}",
        )
        for name in ("presence_penalty", "frequency_penalty"):
            value = getattr(self, name)
            _require(-2.0 <= value <= 2.0, f"{name} must lie in [-2, 2], got {value}")
        _require(all(map(math.isfinite, self.logit_bias.values())), "logit_bias must be finite")
        _require(0 <= self.top_logprobs <= 20, f"top_logprobs must lie in [0, 20], got {self.top_logprobs}")

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
    """What a client asked for, whatever dialect it spoke."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = "auto"
    forced_tool: str | None = None
    parallel_tool_calls: bool = True
    sampling: Sampling
    stop: tuple[str, ...] = ()
    num_choices: int = 1
    model: str = ""

    def __post_init__(self) -> None:
        _require(bool(self.messages), "messages must not be empty")
        _require(self.num_choices >= 1, f"n must be at least 1, got {self.num_choices}")
        _require(
            self.forced_tool is None or any(t.name == self.forced_tool for t in self.tools),
            f"tool_choice names {self.forced_tool!r}, which is not among the tools",
        )


@dataclass(frozen=True, slots=True)
class VersionSpan:
    """Tokens [start, end) of a completion were sampled by this version."""

    version: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One alternative at one position."""

    token_id: int
    logprob: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """Newly sampled tokens, as an engine streams them.

    `logprobs[i]` is log softmax(logits / T) of `token_ids[i]` before top-p, top-k and penalties. The last delta
    carries a `finish_reason`; `version` is the weights that sampled these tokens.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    version: str
    top_logprobs: tuple[tuple[TokenLogprob, ...], ...] | None = None
    finish_reason: Literal["stop", "length", "abort"] | None = None
    num_cached_tokens: int = 0

    def __post_init__(self) -> None:
        _require(
            len(self.token_ids) == len(self.logprobs),
            f"{len(self.token_ids)} token ids came with {len(self.logprobs)} log-probs",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The sampled answer, token by token, exactly as the engine reported it."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason
    version_spans: tuple[VersionSpan, ...]
    top_logprobs: tuple[tuple[TokenLogprob, ...], ...] | None = None

    def __post_init__(self) -> None:
        _require(
            len(self.token_ids) == len(self.logprobs),
            f"{len(self.token_ids)} token ids came with {len(self.logprobs)} log-probs",
        )
        position = 0
        for span in self.version_spans:
            _require(span.start == position and span.end > span.start, f"version spans leave a gap at {position}")
            position = span.end
        _require(position == len(self.token_ids), f"version spans cover {position} of {len(self.token_ids)} tokens")

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions that sampled this answer, in order."""
        return tuple(span.version for span in self.version_spans)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One conversation of one user with one client.

    `key` is the name the client gave it (a header or body key), None when it was inferred from the history.
    """

    id: str
    user: str
    client: str
    opened_at: float
    last_seen_at: float
    key: str | None = None
    closed_at: float | None = None
    opted_out: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A request and its answer.

    `prompt_ids` ends where sampling began; its last `num_prefill` ids belong to the answer's message although
    they were given, not sampled (a forced tool call opens that way). `chain` names the conversation up to and
    including the answer and `request_digest` the request alone (gateway/sessions.py makes both).
    `model` names the model and tokenizer that answered. `message` is the assistant message as delivered.
    """

    session: str
    index: int
    parent: int | None
    kind: TurnKind
    created_at: float
    finished_at: float
    dialect: str
    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    sampling: Sampling
    stop: tuple[str, ...] = ()
    prompt_ids: tuple[int, ...]
    num_prefill: int = 0
    completion: Completion
    message: Message
    request_digest: str
    chain: str
    skip: Skip | None = None
    delivered: bool = False

    def __post_init__(self) -> None:
        _require(self.index >= 0, f"turn index must not be negative, got {self.index}")
        _require(
            self.parent is None or 0 <= self.parent < self.index,
            f"turn {self.index} cannot continue turn {self.parent}",
        )
        _require(0 <= self.num_prefill <= len(self.prompt_ids), "num_prefill exceeds the prompt")
        _require(self.message.role == "assistant", f"an answer has role assistant, got {self.message.role!r}")

    @property
    def id(self) -> str:
        """`SESSION.INDEX`, the name that headers, commands and feedback use."""
        return turn_id(self.session, self.index)

    @property
    def answer_ids(self) -> tuple[int, ...]:
        """The exact ids of the assistant message: what was prefilled and what was sampled."""
        prefill = self.prompt_ids[len(self.prompt_ids) - self.num_prefill :] if self.num_prefill else ()
        return prefill + self.completion.token_ids


@dataclass(frozen=True, slots=True, kw_only=True)
class NextState:
    """Every message that arrived after a turn, in order: all tool results, and what the person said."""

    session: str
    index: int
    messages: tuple[Message, ...]
    arrived_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """What a person said about a turn outright: a score of -1, 0 or +1, a text, or both."""

    session: str
    index: int
    user: str
    given_at: float
    score: Literal[-1, 0, 1] | None = None
    text: str = ""

    def __post_init__(self) -> None:
        _require(self.score in (None, -1, 0, 1), f"score must be -1, 0 or 1, got {self.score}")
        _require(self.score is not None or bool(self.text), "feedback needs a score or a text")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key of one user; only its SHA-256 is stored."""

    id: str
    user: str
    digest: bytes
    created_at: float
    label: str = ""
    revoked_at: float | None = None


PERSON, BACKGROUND = 0, 1
"""Priorities of engine requests: whatever a person waits for comes before judging, gating and refreshing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest:
    """Tokens in, as an engine takes them. `version` None means the live weights."""

    request_id: str
    token_ids: Sequence[int]
    sampling: Sampling
    stop_token_ids: tuple[int, ...] = ()
    version: str | None = None
    priority: int = PERSON


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRequest:
    """Which log-probs a version gives to tokens that are already there.

    Of every sequence the tokens from `starts[i]` on are scored, each given all before it, so `starts[i] >= 1`.
    Sequences that share a prefix pay for it once. `version` None means the live weights.
    """

    request_id: str
    sequences: tuple[tuple[int, ...], ...]
    starts: tuple[int, ...]
    temperature: float = 1.0
    top_logprobs: int = 0
    version: str | None = None
    priority: int = BACKGROUND

    def __post_init__(self) -> None:
        _require(bool(self.sequences), "sequences must not be empty")
        _require(
            len(self.sequences) == len(self.starts),
            f"{len(self.sequences)} sequences came with {len(self.starts)} starts",
        )
        for ids, start in zip(self.sequences, self.starts, strict=True):
            _require(0 < start < len(ids), f"starts must lie in [1, {len(ids) - 1}] for its sequence, got {start}")
        _require(0.0 < self.temperature <= 2.0, f"temperature must lie in (0, 2], got {self.temperature}")
        _require(0 <= self.top_logprobs <= 20, f"top_logprobs must lie in [0, 20], got {self.top_logprobs}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """The answer for one sequence: `logprobs[i]` is that of its token `start + i`, as softmax(logits / T)."""

    logprobs: tuple[float, ...]
    top_logprobs: tuple[tuple[TokenLogprob, ...], ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """A version to be loaded: a folder with a PEFT adapter or with full weights, and what its bytes must hash to.

    `live` says whether requests that name no version are answered by it from then on; publishing a loaded version
    again only makes it live. Versions are labels like `v3`; a label names the same bytes for ever.
    """

    version: str
    path: str
    sha256: str
    live: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineState:
    """What an engine says about itself."""

    model: str
    versions: tuple[str, ...]
    live_version: str
    context_window: int
    vocab_size: int
    device: str
    dtype: str


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


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOutline:
    """As much of a turn as placing later requests needs."""

    index: int
    parent: int | None
    kind: TurnKind
    request_digest: str
    chain: str
    finish_reason: FinishReason
    delivered: bool
    has_next_state: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOutline:
    """A session and the outlines of its turns, as the store knows them at start."""

    session: Session
    turns: tuple[TurnOutline, ...]

    @property
    def next_index(self) -> int:
        return max((turn.index for turn in self.turns), default=-1) + 1


def turn_id(session: str, index: int) -> str:
    """The name of a turn, `SESSION.INDEX`."""
    return f"{session}.{index}"


def split_turn_id(name: str) -> tuple[str, int]:
    """The session and index that `turn_id` joined; ValueError if `name` is not of that form."""
    session, dot, index = name.rpartition(".")
    valid = bool(session and dot) and index.isascii() and index.isdigit() and len(index) < 10
    _require(valid, f"{name[:80]!r} is not a turn id (SESSION.INDEX)")
    return session, int(index)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)
