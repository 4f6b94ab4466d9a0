"""What is asked of a service that computes elsewhere, on one page. Tokens and numbers only; weights are names (URIs).

A service says log-probs at temperature 1, whatever the answer was sampled at: what else is asked is worked out here
from those, or refused. `None` for weights is the untouched base model. Everything raises `CloudError`.

Axes: N tokens that are read, R of them that are asked about, K targets of each.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from openclaw_rl.types import Json, Sampling, TokenLogprob
from openclaw_rl.types.checks import require

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
ServiceName = Literal["tinker", "fireworks"]

KEY_VARIABLES: Mapping[ServiceName, str] = {
    "tinker": "TINKER_API_KEY",
    "fireworks": "FIREWORKS_API_KEY",
}
"""Where a worker finds the key: arguments are seen by all users."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Which service, and which base model there. The key is in the environment, see `KEY_VARIABLES`."""

    service: ServiceName
    base_model: str
    url: str | None = None
    """None is the service's own address."""
    project: str | None = None
    patience_s: float = 60.0
    """How long a service that does not answer is waited for."""
    likely: int = 2
    """As many likely tokens of a place will be asked for at once."""

    @property
    def place(self) -> str:
        """As people know it."""
        return f"{self.service.capitalize()}" + (f" at {self.url}" if self.url else "")

    @property
    def key(self) -> str:
        return os.environ.get(KEY_VARIABLES[self.service], "")

    def to_json(self) -> dict[str, Json]:
        return asdict(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        return cls(**raw)


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What was seen of a service when it was looked at: each was tried, none is believed."""

    context_window: int
    prompt_logprobs: bool
    """It says the log-probs of given tokens: without that nothing can be proved."""
    likely_tokens: bool
    """It says the likeliest tokens at given places: without that a teacher has no top-k."""
    chosen_tokens: bool
    """It says the log-probs of any tokens that are named, at given places."""
    wide_targets: bool
    """It trains on several targets at each place."""
    policy_loss: bool
    """It has the clipped policy loss of its own: one pass instead of two."""
    scaled_logprobs: bool = True
    """What it says of sampled tokens is of softmax(logits / T)."""
    alternatives: int = 20
    """As many likely tokens are said of each that is drawn."""
    sdk: str = ""
    """The version of the SDK that spoke to it."""

    def to_json(self) -> dict[str, Json]:
        return asdict(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        return cls(**raw)


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """Tokens that a service will charge for."""

    prefill: int = 0
    cached: int = 0
    """Of a prompt, found in the service's cache: cheaper."""
    sample: int = 0
    train: int = 0

    def __add__(self, other: Used) -> Used:
        return Used(
            prefill=self.prefill + other.prefill,
            cached=self.cached + other.cached,
            sample=self.sample + other.sample,
            train=self.train + other.train,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnAnswer:
    """An answer: exact ids, as they were drawn. With the token that ended it, where one did."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: Literal["stop", "length"]
    used: Used
    top_logprobs: tuple[tuple[TokenLogprob, ...], ...] | None = None

    def __post_init__(self) -> None:
        require(len(self.token_ids) == len(self.logprobs), "each token has a log-prob")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SaidOf:
    """What is said of the last R tokens of a sequence."""

    logprobs: Floats
    used: Used
    likely: tuple[Ints, Floats] | None = None
    """Ids and log-probs, the likeliest first; None where nobody asked."""
    chosen: Floats | None = None
    """Of the ids that were named."""


class CloudSampler(Protocol):
    """Reads and draws with any snapshot of weights."""

    async def open(self, weights: str | None) -> None:
        """Returns when these weights can be asked; `CloudError` of kind `missing` if they are not there."""
        ...

    async def draw(
        self, weights: str | None, prompt_ids: Sequence[int], how: Sampling, *, stop_ids: Sequence[int]
    ) -> DrawnAnswer: ...

    async def read(
        self, weights: str | None, ids: Sequence[int], *, last: int, likely: int = 0, chosen_RK: Ints | None = None
    ) -> SaidOf:
        """The last `last` tokens, each given all before it."""
        ...

    def let_go(self, weights: str) -> None:
        """Nobody will ask these weights again."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The adapter that a line begins with."""

    rank: int
    seed: int
    attention: bool = True
    mlp: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """AdamW's step; the gradient is a sum."""

    learning_rate: float
    beta1: float
    beta2: float
    weight_decay: float
    max_norm: float
    eps: float = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Passage:
    """A sequence to be read, and what is asked about each of its tokens: `targets[i]` follow `ids[:i + 1]`.

    Places that nobody asks about have target 0. One target is a column."""

    ids: tuple[int, ...]
    targets: Ints

    def __post_init__(self) -> None:
        require(self.targets.ndim == 2 and len(self.targets) == len(self.ids), "targets stand beside their ids")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Policy:
    """The clipped policy loss of one sequence: -min(ρA, clip(ρ)A) summed, ρ against `old_N`."""

    ids: tuple[int, ...]
    targets: Ints
    old: Floats
    advantages: Floats


Gradient = Callable[[Sequence[Floats]], Sequence[Floats]]
"""The log-probs [N, K] of each passage -> the gradient of the loss by each of them."""


class CloudLearner(Protocol):
    """One adapter that is trained. Gradients add up until `move`. After any error it is of no use: `begin` again."""

    used: Used
    """Since it was made."""

    async def begin(self, parent: str | None, form: Form) -> None:
        """A fresh adapter, or what `save` called so with its optimiser's state; `missing` if that is gone."""
        ...

    async def forward(self, passages: Sequence[Passage]) -> list[Floats]: ...

    async def backward(self, passages: Sequence[Passage], gradient: Gradient) -> None:
        """Two passes: what the loss is of is known after the first."""
        ...

    async def linear(self, passages: Sequence[Passage], gradients: Sequence[Floats]) -> list[Floats]:
        """One pass, where the gradient is known before; the log-probs."""
        ...

    async def policy(self, batch: Sequence[Policy], *, clip_low: float, clip_high: float) -> list[Floats]:
        """One pass of the service's own loss; the log-probs [N]."""
        ...

    async def move(self, how: Move) -> Mapping[str, float]:
        """The norm of the gradient, as `norm`, where the service says it."""
        ...

    def names(self, label: str) -> tuple[str, ...]:
        """What `save` will write, known before it begins: the first is what samplers open, the others belong to it."""
        ...

    async def save(self, label: str) -> str:
        """Weights for samplers, and all that `begin` needs besides; what samplers call it."""
        ...

    async def close(self) -> None: ...


class Service(Protocol):
    """One service as a whole."""

    def sampler(self) -> CloudSampler: ...

    def learner(self) -> CloudLearner: ...

    async def survey(self) -> Abilities:
        """Looks at key, base model and abilities, with a few tokens."""
        ...

    async def remove(self, uri: str) -> None:
        """What is gone already is no error."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyReport:
    """What was seen, when, and of what: a service that is away at a later start is taken as it was."""

    access: Access
    abilities: Abilities
    at: float
    extra: Mapping[str, Json] = field(default_factory=dict)
