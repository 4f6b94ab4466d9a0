"""On which terms a key opens the gateway: how much it may ask for, and how its user counts beside others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Self

from openclaw_rl.types.checks import require
from openclaw_rl.types.messages import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyTerms:
    """Terms of one key; None: what the settings say for every key.

    `weight`: how much its user counts where people take turns.
    """

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    training_share: float | None = None
    weight: float | None = None

    def __post_init__(self) -> None:
        for name in ("requests_per_minute", "tokens_per_minute", "weight"):
            value = getattr(self, name)
            require(value is None or value > 0, f"{name} must be more than 0, got {value}")
        share = self.training_share
        require(share is None or 0.0 < share <= 1.0, f"training_share must lie in (0, 1], got {share}")

    def to_json(self) -> dict[str, Json]:
        """What is not None."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, raw: dict[str, Json]) -> Self:
        """ValueError for a term that there is none of, or that is no number."""
        known = [field.name for field in fields(cls)]
        for name, value in raw.items():
            require(name in known, f"a key's terms are {', '.join(known)}; got {name!r}")
            require(isinstance(value, int | float) and not isinstance(value, bool), f"{name} must be a number")
        return cls(**raw)


def terms_of_user(keys: Iterable[KeyTerms]) -> KeyTerms:
    """Of several keys of one user: the largest share and weight. Limits are each key's."""
    found = list(keys)
    shares = [one.training_share for one in found if one.training_share is not None]
    weights = [one.weight for one in found if one.weight is not None]
    return KeyTerms(training_share=max(shares, default=None), weight=max(weights, default=None))
