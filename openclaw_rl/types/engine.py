"""Tokens in, tokens out: what an engine is asked, what it answers, and which weights it answers with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from openclaw_rl.types.checks import require
from openclaw_rl.types.messages import Sampling
from openclaw_rl.types.weights import WeightsRef

BASE_VERSION = "v0"
"""The label of the untouched base weights; the first update of a line makes `v1`."""


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
    """How much of the prompt was found among what the request's own salt had left; nothing that others did shows."""

    def __post_init__(self) -> None:
        require(
            len(self.token_ids) == len(self.logprobs),
            f"{len(self.token_ids)} token ids came with {len(self.logprobs)} log-probs",
        )


PERSON, BACKGROUND = 0, 1
"""Priorities of engine requests: whatever a person waits for comes before judging, gating and refreshing."""


SYSTEM_SALT = "system"
"""The salt of what the system asks for itself: gate, examinations, judges. Nobody sends a request with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest:
    """Tokens in, as an engine takes them. `version` None means the live weights.

    `exact`: also what was read before is to be read by this version. Otherwise an engine may go on from what versions
    shortly before it computed (`engine.kv_after_update`): quicker for a person, and no measure of a version.

    `cache_salt` says whose the tokens are, without saying who that is: what an engine keeps of them serves requests of
    the same salt. Only the first `num_shareable` tokens may also serve those of another salt that share them. An empty
    salt belongs to this one request: it finds nothing, and nothing is kept of it. So a caller that forgets the salt
    loses time, and never a word.

    `conversation` is the same for all requests of one, and says nothing else: where several engines answer as one, they
    go to the one that has read what came before.

    `party` says whose requests take turns with those of others, again without saying who that is; one without a party
    stands alone. A party of twice the `weight` begins twice as many where all have requests that wait.
    """

    request_id: str
    token_ids: Sequence[int]
    sampling: Sampling
    stop_token_ids: tuple[int, ...] = ()
    version: str | None = None
    priority: int = PERSON
    exact: bool = False
    cache_salt: str = ""
    num_shareable: int = 0
    conversation: str = ""
    party: str = ""
    weight: float = 1.0

    def __post_init__(self) -> None:
        require(self.weight > 0.0, f"weight must be more than 0, got {self.weight}")
        require(self.num_shareable >= 0, f"num_shareable must be at least 0, got {self.num_shareable}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRequest:
    """Which log-probs a version gives to tokens that are already there.

    Of every sequence the tokens from `starts[i]` on are scored, each given all before it, so `starts[i] >= 1`.
    Sequences that share a prefix pay for it once. `version` None means the live weights. `cache_salt` is that of a
    `GenerateRequest`; an empty one belongs to the sequences of this request.
    """

    request_id: str
    sequences: tuple[tuple[int, ...], ...]
    starts: tuple[int, ...]
    temperature: float = 1.0
    top_logprobs: int = 0
    version: str | None = None
    priority: int = BACKGROUND
    cache_salt: str = ""

    def __post_init__(self) -> None:
        require(bool(self.sequences), "sequences must not be empty")
        require(
            len(self.sequences) == len(self.starts),
            f"{len(self.sequences)} sequences came with {len(self.starts)} starts",
        )
        for ids, start in zip(self.sequences, self.starts, strict=True):
            require(0 < start < len(ids), f"starts must lie in [1, {len(ids) - 1}] for its sequence, got {start}")
        require(0.0 < self.temperature <= 2.0, f"temperature must lie in (0, 2], got {self.temperature}")
        require(0 <= self.top_logprobs <= 20, f"top_logprobs must lie in [0, 20], got {self.top_logprobs}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """The answer for one sequence: `logprobs[i]` is that of its token `start + i`, as softmax(logits / T)."""

    logprobs: tuple[float, ...]
    top_logprobs: tuple[tuple[TokenLogprob, ...], ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenRequest:
    """What the base model holds behind `layer` of its blocks at the last token of each sequence, whatever is live."""

    request_id: str
    sequences: tuple[tuple[int, ...], ...]
    layer: int
    priority: int = BACKGROUND

    def __post_init__(self) -> None:
        require(bool(self.sequences) and all(self.sequences), "sequences must not be empty, nor any of them")
        require(self.layer >= 1, f"layer counts the blocks from 1, got {self.layer}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hidden:
    """The answer for one sequence: one float32 for each unit of the model's width."""

    values: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """A version to be loaded: a PEFT adapter, or full weights. The base model has no weights of its own: None.

    An engine refuses what it cannot fetch, and what does not hash to `sha256`.

    `live` says whether requests that name no version are answered by it from then on; publishing a loaded version
    again only makes it live. Versions are labels like `v3`; a label names the same bytes for ever.

    `known`: an engine before this one had loaded it. Where there is no room for all, it need not be read before
    somebody asks for it.
    """

    version: str
    weights: WeightsRef | None = None
    live: bool = True
    known: bool = False

    @property
    def sha256(self) -> str:
        """What the bytes must hash to; empty for the base model."""
        return "" if self.weights is None else self.weights.sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What an engine can do. Callers ask this, never which engine it is."""

    reports_checksum: bool
    """`EngineState.checksums` says what the loaded bytes hash to; otherwise correlation alone proves a version."""
    scores: bool
    """`score` gives the log-probs of given tokens; without it no version can be proved, so nothing is learned."""
    top_k: int
    """Most alternatives that it reports at one position."""
    hot_adapters: bool
    """It loads an adapter while it answers."""
    full_weights: bool
    """It loads a whole checkpoint as a version."""
    has_weights: bool = True
    """A model with weights answers, so that there is something to train."""
    computes_here: bool = True
    """It reads the model's files; otherwise they are with a service, and only what renders is needed here."""
    hidden: bool = False
    """`hidden` gives the hidden states of the base model."""
    logprobs_changed_by: frozenset[str] = frozenset()
    """Names of `SHAPING` under which its log-probs are not those of softmax(logits / T): what was sampled so is kept as
    a conversation, and nobody learns from it."""


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
    checksums: Mapping[str, str] = field(default_factory=dict)
    """What the bytes of each version hash to that were published and loaded; the base has none."""


Health = Literal["starting", "answers", "catches up", "silent", "down"]
"""What one of several engines does: `catches up` loads what was published and proves it, and gets no request before
that; `silent` has work and says nothing, so that others answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineHealth:
    """How one of several engines is. `reason` is why it does not answer, or what it does not answer."""

    name: str
    health: Health
    reason: str = ""
    num_running: int = 0
    num_restarts: int = 0
