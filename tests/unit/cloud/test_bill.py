"""What a service cost: today, in all, at which prices, and when nothing more is trained."""

from __future__ import annotations

from pathlib import Path

import pytest

from openclaw_rl.cloud.bill import Prices, Till, bill_text, over_budget, read_bill
from openclaw_rl.cloud.service import Used

DAY = 86400.0
PRICES = Prices(prefill=1.0, sample=2.0, train=3.0)


class Clock:
    now = 10 * DAY + 5

    def __call__(self) -> float:
        return self.now


def test_each_kind_has_its_price() -> None:
    used = Used(prefill=1_000_000, cached=1_000_000, sample=1_000_000, train=1_000_000)
    assert PRICES.cost(used) == 1 + 1 + 2 + 3, "a cached token without a price of its own costs as any other"
    assert Prices(prefill=1.0, cached=0.2, sample=2.0, train=3.0).cost(used) == pytest.approx(6.2)
    assert Prices(prefill=1.0, sample=2.0).cost(used) is None


def test_a_day_ends_at_midnight_utc(tmp_path: Path) -> None:
    clock = Clock()
    till, other = Till(tmp_path, PRICES, clock=clock), Till(tmp_path, PRICES, clock=clock)
    till.add(Used(prefill=1_000_000), by="engine")
    other.add(Used(train=1_000_000), by="trainer")
    assert (till.bill().usd_today, till.bill().usd_total) == (4.0, 4.0)
    clock.now += DAY
    till.add(Used(sample=1_000_000), by="engine")
    bill = till.bill()
    assert (bill.usd_today, bill.usd_total) == (2.0, 6.0)
    assert bill.total == Used(prefill=1_000_000, sample=1_000_000, train=1_000_000)
    assert other.bill() == bill


def test_a_line_that_a_kill_cut_short_is_left_out(tmp_path: Path) -> None:
    till = Till(tmp_path, PRICES)
    till.add(Used(train=7), by="trainer")
    (file,) = tmp_path.glob("*.jsonl")
    with file.open("a") as cut:
        cut.write('{"by": "engine", "pref')
    assert till.bill().total == Used(train=7)
    assert file.stat().st_mode & 0o777 == 0o600


def test_whoever_only_looks_has_the_prices_of_the_last_start(tmp_path: Path) -> None:
    assert read_bill(tmp_path) is None
    till = Till(tmp_path / "cloud" / "bill", PRICES)
    till.add(Used(train=2_000_000), by="trainer")
    without = read_bill(tmp_path)
    assert without is not None
    assert (without.usd_total, "no prices are set" in bill_text(without)) == (None, True)
    till.keep_prices()
    bill = read_bill(tmp_path)
    assert bill is not None
    assert bill_text(bill).startswith("Bill so far: $6.00, today $6.00 (")


def test_a_step_that_would_pass_the_budget_is_not_taken(tmp_path: Path) -> None:
    till = Till(tmp_path, PRICES)
    till.add(Used(train=1_000_000), by="trainer")
    bill = till.bill()
    assert over_budget(bill, 1.0, None) == ""
    assert over_budget(bill, 1.0, 4.0) == ""
    why = over_budget(bill, 1.5, 4.0)
    assert "$3.00 of the daily budget of $4.00 is spent, and the next step needs about $1.50" in why
    assert "chat goes on" in why
