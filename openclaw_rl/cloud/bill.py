"""Tokens that a service computed -> what it costs: today, in all, and before it is asked.

    DATA_DIR/cloud/bill/2026-11-19.jsonl      {"by": "engine", "prefill": 512, "cached": 0, "sample": 40, "train": 0}
    DATA_DIR/cloud/bill/prices.json           those of the last start, for whoever only looks

A line for each request or step, added in one write, so that several processes may write and a kill loses at most the
last one. The day is UTC's. Prices are the settings': nobody here knows a price list, and without prices the bill is in
tokens. Knows no conversation.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from openclaw_rl.cloud.service import Used
from openclaw_rl.types import Json

_MILLION = 1e6
_PRICES = "prices.json"
KINDS = tuple(field.name for field in fields(Used))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """US dollars for a million tokens of each kind; None: nobody said."""

    prefill: float | None = None
    cached: float | None = None
    sample: float | None = None
    train: float | None = None

    @property
    def are_known(self) -> bool:
        return None not in (self.prefill, self.sample, self.train)

    def cost(self, used: Used) -> float | None:
        """None where a price is missing. A cached token without a price of its own costs as any other."""
        if not self.are_known:
            return None
        assert self.prefill is not None
        assert self.sample is not None
        assert self.train is not None
        cached = self.prefill if self.cached is None else self.cached
        paid = used.prefill * self.prefill + used.cached * cached + used.sample * self.sample + used.train * self.train
        return paid / _MILLION


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """So far: `today` and in all."""

    today: Used
    total: Used
    usd_today: float | None
    usd_total: float | None

    def to_json(self) -> dict[str, Json]:
        return {
            "today": {kind: getattr(self.today, kind) for kind in KINDS},
            "total": {kind: getattr(self.total, kind) for kind in KINDS},
            "usd_today": self.usd_today,
            "usd_total": self.usd_total,
        }


class Till:
    """What was used, in a folder."""

    def __init__(self, folder: Path, prices: Prices, *, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._prices = prices
        self._clock = clock
        self._past: tuple[str, Used] = ("", Used())
        """The days before this one, which change no more."""

    def add(self, used: Used, *, by: str) -> None:
        """On disk when it returns, though not yet forced to it."""
        if used == Used():
            return
        line = {"by": by, **{kind: getattr(used, kind) for kind in KINDS}}
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._file(self._day()), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, json.dumps(line).encode() + b"\n")
        finally:
            os.close(descriptor)

    def bill(self) -> Bill:
        """Reads today's file, and others once a day."""
        day = self._day()
        if self._past[0] != day:
            before = (_read(path) for path in self._folder.glob("*.jsonl") if path.stem != day)
            self._past = (day, sum(before, Used()))
        today = _read(self._file(day))
        total = today + self._past[1]
        return Bill(today=today, total=total, usd_today=self._prices.cost(today), usd_total=self._prices.cost(total))

    def _day(self) -> str:
        return time.strftime("%Y-%m-%d", time.gmtime(self._clock()))

    def _file(self, day: str) -> Path:
        return self._folder / f"{day}.jsonl"

    def keep_prices(self) -> None:
        """For whoever only looks."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self._folder / _PRICES).write_text(json.dumps(asdict(self._prices)) + "\n", encoding="utf-8")


def read_bill(data_dir: Path) -> Bill | None:
    """At the prices of the last start; None where nothing was ever computed elsewhere."""
    folder = data_dir / "cloud" / "bill"
    if not folder.is_dir():
        return None
    try:
        prices = Prices(**json.loads((folder / _PRICES).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        prices = Prices()
    return Till(folder, prices).bill()


def bill_text(bill: Bill) -> str:
    """A line for people."""
    tokens = ", ".join(f"{kind} {getattr(bill.total, kind):,}" for kind in KINDS)
    if bill.usd_total is None or bill.usd_today is None:
        return f"Computed elsewhere so far: {tokens} tokens; no prices are set (training.cloud.price_prefill)."
    return f"Bill so far: ${bill.usd_total:.2f}, today ${bill.usd_today:.2f} ({tokens} tokens)."


def over_budget(bill: Bill, next_step: float | None, budget: float | None) -> str:
    """Why no step is taken now; empty if one is."""
    if budget is None or bill.usd_today is None:
        return ""
    if bill.usd_today + (next_step or 0.0) <= budget:
        return ""
    need = f", and the next step needs about ${next_step:.2f}" if next_step else ""
    return (
        f"${bill.usd_today:.2f} of the daily budget of ${budget:.2f} is spent{need}: training goes on after midnight "
        "UTC, or with a larger training.cloud.daily_budget; chat goes on"
    )


def _read(path: Path) -> Used:
    """A line that a kill cut short is the last one, and left out."""
    found = Used()
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return found
    for line in text.splitlines():
        try:
            raw: Mapping[str, int] = json.loads(line)
        except ValueError:
            continue
        found += Used(**{kind: int(raw.get(kind, 0)) for kind in KINDS})
    return found
