"""Ranks that are started again and again -> one group at a time, with a store of its own and the words of its first.

    meetings            how often the first has called; a meeting's keys begin with its number
    here/2              which process is rank 2 of it: the last that came, by a word of its own
    all                 those whom the first saw, and what it has to tell them

torchrun keeps one store for as long as it runs: what ranks of an earlier start left there, their addresses as well,
would be taken for those of now. Machines start their ranks again each by itself, so counting the starts says nothing.
Who comes too late for a meeting waits for the next one. Knows no model and no order.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import PrefixStore, Store

FOREVER = timedelta(days=3650)
"""How long ranks wait for each other, and for the next order: nobody has to train."""
_LOOK_S = 0.1


def call(store: Store, size: int, words: Mapping[str, Any]) -> Store:
    """Rank 0 waits until all are there, and tells them; the store of this group."""
    group = _meeting(store, store.add("meetings", 1))
    others = [f"here/{rank}" for rank in range(1, size)]
    if others:
        group.wait(others, FOREVER)
    group.set("all", json.dumps({"here": [group.get(one).decode() for one in others], "words": words}))
    return group


def answer(store: Store, rank: int) -> tuple[Store, Mapping[str, Any]]:
    """Another rank waits until it is called; the store of this group, and what the first tells."""
    name, last = secrets.token_hex(8), 0
    while True:
        number = store.add("meetings", 0)
        group = _meeting(store, number)
        if number > last:
            group.set(f"here/{rank}", name)
            last = number
        if number and group.check(["all"]):
            said = json.loads(group.get("all"))
            if name in said["here"]:
                return group, said["words"]
        time.sleep(_LOOK_S)


def _meeting(store: Store, number: int) -> Store:
    return PrefixStore(f"meeting {number}", store)
