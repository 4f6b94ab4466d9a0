"""Long lists, a part at a time: where a part begins is a key, so that what comes meanwhile moves nothing."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import orjson

from openclaw_rl.errors import RequestError

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Paging:
    """`limit` entries behind the one that `after` names; None: from the beginning."""

    after: str | None = None
    limit: int = 50

    def key(self, *kinds: type) -> tuple[object, ...] | None:
        """What `after` names, checked; None at the beginning."""
        if self.after is None:
            return None
        try:
            found = orjson.loads(base64.urlsafe_b64decode(self.after.encode()))
        except ValueError:
            found = None
        fits = isinstance(found, list) and len(found) == len(kinds)
        if not fits or not all(isinstance(one, kind) for one, kind in zip(found, kinds, strict=True)):
            raise RequestError("this is no place in that list; take what `next` said", param="after")
        return tuple(found)


def place(*key: float | str) -> str:
    """The text that names a place in a list."""
    return base64.urlsafe_b64encode(orjson.dumps(key)).decode()


def first_part(items: Sequence[T], limit: int) -> tuple[tuple[T, ...], bool]:
    """Of a list that was asked for with one entry more than wanted: the part, and whether there is more."""
    return tuple(items[:limit]), len(items) > limit
