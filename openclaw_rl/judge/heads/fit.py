"""Labelled reactions, read through an engine -> heads: those that are shipped (`wiring/heads.py`), and a model's own.

A model's own are fitted at its first start, in the background, with the engine that serves. Reading stops when
`BUDGET_S` are over: the examples come in an order that mixes writers, so the first of them stand for all.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

import numpy as np

from openclaw_rl.errors import JudgeError
from openclaw_rl.judge.heads.check import Passed, check_opinions
from openclaw_rl.judge.heads.examples import CHECK, EXAMPLES, Example, load
from openclaw_rl.judge.heads.model import (
    Heads,
    HiddenHeads,
    model_digest,
    shipped_file,
    shipped_grams,
)
from openclaw_rl.judge.heads.regression import Floats
from openclaw_rl.judge.heads.states import States

log = logging.getLogger(__name__)

BUDGET_S = 45.0
MIN_EXAMPLES = 300
"""Fewer are not worth fitting on; the check would fail them."""
_AT_ONCE = 16


def mixed(examples: Sequence[Example]) -> list[Example]:
    """One of each writer and kind in turn, so that every beginning of the list holds some of all."""
    groups: defaultdict[tuple[str, str, int], list[Example]] = defaultdict(list)
    for one in examples:
        groups[one.writer, one.kind, one.score].append(one)
    return [one for row in zip_longest(*groups.values()) for one in row if one is not None]


async def read_states(states: States, examples: Sequence[Example], *, budget_s: float | None = None) -> Floats:
    """The hidden states of the examples, or of as many from the first on as there is time for."""
    began, found = time.monotonic(), list[Floats]()
    for at in range(0, len(examples), _AT_ONCE):
        if found and budget_s is not None and time.monotonic() - began > budget_s:
            break
        found.append(await states.read([one.reaction for one in examples[at : at + _AT_ONCE]]))
    return np.concatenate(found)


async def fit_for(states: States, *, budget_s: float | None = BUDGET_S) -> HiddenHeads:
    """Heads for the model behind an engine; JudgeError where it is too slow for enough examples."""
    examples = mixed(load(EXAMPLES))
    hidden_NH = await read_states(states, examples, budget_s=budget_s)
    if len(hidden_NH) < MIN_EXAMPLES:
        raise JudgeError(f"the engine read {len(hidden_NH)} examples in {budget_s:g} s; {MIN_EXAMPLES} are needed")
    return await asyncio.to_thread(HiddenHeads.fitted, examples[: len(hidden_NH)], hidden_NH, layer=states.layer)


async def check_heads(heads: Heads, states: States) -> Passed:
    """How the heads do on the writers that they were not fitted on."""
    examples = load(CHECK)
    hidden_NH = await read_states(states, examples)
    return check_opinions(examples, heads.opinions([one.reaction for one in examples], hidden_NH))


async def heads_for(states: States, folder: Path, name: str, cache: Path) -> Heads:
    """The heads of a model: shipped, or kept from an earlier start, or fitted now. JudgeError if they do not pass."""
    model, grams = await asyncio.to_thread(model_digest, folder), shipped_grams()
    file = cache / f"heads-{model}.npz"
    for known in (shipped_file(name), file):
        try:
            return Heads(grams, await asyncio.to_thread(HiddenHeads.load, known, model=model))
        except JudgeError as error:
            if known.exists():
                log.info("%s", error)
    heads = Heads(grams, await fit_for(states))
    passed = await check_heads(heads, states)
    if not passed.is_enough:
        raise JudgeError(f"the heads fitted for {name} do not pass the check set: {passed}")
    await asyncio.to_thread(heads.hidden.save, file, model=model)
    log.info("heads fitted", extra={"model": name, "check": str(passed)})
    return heads
