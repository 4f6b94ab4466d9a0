"""How much a key may ask for in a minute: requests, and tokens of prompts and answers together.

Two buckets for each key, filled evenly over a minute and full at the start. A request needs one whole request, and a
bucket of tokens that is not empty; what it took is known afterwards, and may leave that bucket below empty. Whoever is
refused is told when to come again. In memory: a restart fills all buckets, and every gateway counts for itself.

Knows no HTTP and no user: it is given keys, and a clock.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from openclaw_rl.errors import RequestError
from openclaw_rl.types import ApiKey

Quota = Literal["requests_per_minute", "tokens_per_minute"]

_MINUTE_S = 60.0


@dataclass(slots=True)
class _Bucket:
    """`level` as of `at`; never more than `size`, which a key's terms may change at any time."""

    level: float
    at: float

    def filled(self, size: int, now: float) -> float:
        self.level = min(float(size), self.level + (now - self.at) * size / _MINUTE_S)
        self.at = now
        return self.level

    def ready_in_s(self, size: int, needed: float) -> int:
        """Until it holds `needed`; at least a second."""
        return max(1, math.ceil((needed - self.level) * _MINUTE_S / size))


class Quotas:
    """The buckets of all keys. None: no limit, for keys that have none of their own."""

    def __init__(
        self,
        *,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        on_refused: Callable[[ApiKey, Quota], object] = lambda *_: None,
        on_spent: Callable[[ApiKey, int], object] = lambda *_: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._common: dict[Quota, int | None] = {
            "requests_per_minute": requests_per_minute,
            "tokens_per_minute": tokens_per_minute,
        }
        self._on_refused = on_refused
        self._on_spent = on_spent
        self._clock = clock
        self._buckets: dict[tuple[str, Quota], _Bucket] = {}

    def admit(self, key: ApiKey) -> None:
        """Counts a request; a 429 that says when to come again if the key has used up what it may."""
        requests, tokens = self._limit(key, "requests_per_minute"), self._limit(key, "tokens_per_minute")
        if tokens is not None:
            bucket = self._bucket(key, "tokens_per_minute", tokens)
            if bucket.filled(tokens, self._clock()) <= 0.0:
                raise self._refusal(key, "tokens_per_minute", tokens, bucket.ready_in_s(tokens, 1.0))
        if requests is not None:
            bucket = self._bucket(key, "requests_per_minute", requests)
            if bucket.filled(requests, self._clock()) < 1.0:
                raise self._refusal(key, "requests_per_minute", requests, bucket.ready_in_s(requests, 1.0))
            bucket.level -= 1.0

    def spend(self, key: ApiKey, num_tokens: int) -> None:
        """Counts the tokens of a request that was admitted."""
        self._on_spent(key, num_tokens)
        if (size := self._limit(key, "tokens_per_minute")) is not None:
            bucket = self._bucket(key, "tokens_per_minute", size)
            bucket.filled(size, self._clock())
            bucket.level -= num_tokens

    def forget(self, key_id: str) -> None:
        """The key is gone."""
        for place in [place for place in self._buckets if place[0] == key_id]:
            del self._buckets[place]

    def _limit(self, key: ApiKey, quota: Quota) -> int | None:
        own: int | None = getattr(key.terms, quota)
        return self._common[quota] if own is None else own

    def _bucket(self, key: ApiKey, quota: Quota, size: int) -> _Bucket:
        return self._buckets.setdefault((key.id, quota), _Bucket(float(size), self._clock()))

    def _refusal(self, key: ApiKey, quota: Quota, size: int, retry_after_s: int) -> RequestError:
        self._on_refused(key, quota)
        what = "requests" if quota == "requests_per_minute" else "tokens"
        return RequestError(
            f"key {key.id} may use {size} {what} a minute, and has; try again in {retry_after_s} s. Whoever runs this "
            f"server raises it with `openclaw-rl keys limit {key.id}`, or gateway.{quota}",
            status=429,
            code="rate_limit_exceeded",
            retry_after_s=retry_after_s,
        )
