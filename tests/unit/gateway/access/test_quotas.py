"""Limits of a key, by a clock that a test moves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from openclaw_rl.errors import RequestError
from openclaw_rl.gateway.access.auth import KeyRing, new_key
from openclaw_rl.gateway.access.quotas import Quotas
from openclaw_rl.types import ApiKey, Json, KeyTerms

ANN, _ = new_key("ann", 1.0)
BOB, _ = new_key("bob", 1.0, terms=KeyTerms(requests_per_minute=2))


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def refused(quotas: Quotas, key: ApiKey) -> int:
    """In how many seconds it may come again; 0 if it is let in."""
    try:
        quotas.admit(key)
    except RequestError as error:
        return error.retry_after_s or -1
    return 0


def test_requests_beyond_a_minutes_wait_as_long_as_they_are_told() -> None:
    clock = Clock()
    quotas = Quotas(requests_per_minute=3, clock=clock)
    assert [refused(quotas, ANN) for _ in range(4)] == [0, 0, 0, 20]
    clock.now += 19.9
    assert refused(quotas, ANN) == 1
    clock.now += 0.1
    assert [refused(quotas, ANN) for _ in range(2)] == [0, 20]
    clock.now += 1e6
    assert [refused(quotas, ANN) for _ in range(4)] == [0, 0, 0, 20], "a minute's requests and no more are saved up"


def test_a_refusal_is_a_429_with_the_remedy() -> None:
    quotas = Quotas(requests_per_minute=1, clock=Clock())
    quotas.admit(ANN)
    with pytest.raises(RequestError, match=f"1 requests a minute.*keys limit {ANN.id}") as refusal:
        quotas.admit(ANN)
    assert (refusal.value.status, refusal.value.code) == (429, "rate_limit_exceeded")


def test_tokens_are_counted_when_they_are_known() -> None:
    clock = Clock()
    quotas = Quotas(tokens_per_minute=600, clock=clock)
    assert refused(quotas, ANN) == 0
    quotas.spend(ANN, 1200)
    assert refused(quotas, ANN) == 61
    clock.now += 61
    assert refused(quotas, ANN) == 0


def test_a_key_has_its_own_limits_and_nobody_elses() -> None:
    quotas = Quotas(requests_per_minute=1, clock=Clock())
    assert [refused(quotas, BOB) for _ in range(3)] == [0, 0, 30]
    assert [refused(quotas, ANN) for _ in range(2)] == [0, 60]
    other = replace(BOB, id="k-other")
    assert refused(quotas, other) == 0


def test_where_nothing_is_limited_nothing_is_refused() -> None:
    quotas = Quotas(clock=Clock())
    for _ in range(1000):
        quotas.admit(ANN)
        quotas.spend(ANN, 10**9)


def test_a_limit_that_is_changed_counts_at_once() -> None:
    clock = Clock()
    ring, quotas = KeyRing([BOB]), Quotas(clock=clock)
    assert [refused(quotas, BOB) for _ in range(3)] == [0, 0, 30]
    assert ring.change(BOB.id, KeyTerms(requests_per_minute=600))
    assert not ring.change("k-nobody", KeyTerms())
    (raised,) = ring._keys.values()
    assert refused(quotas, raised) == 1, "the bucket was empty, and fills a tenth of a second each"
    clock.now += 0.11
    assert refused(quotas, raised) == 0


def test_who_observes_hears_of_refusals_and_tokens() -> None:
    heard: list[object] = []
    quotas = Quotas(
        requests_per_minute=1,
        clock=Clock(),
        on_refused=lambda key, quota: heard.append((key.id, quota)),
        on_spent=lambda key, num: heard.append((key.id, num)),
    )
    quotas.admit(ANN)
    quotas.spend(ANN, 7)
    refused(quotas, ANN)
    assert heard == [(ANN.id, 7), (ANN.id, "requests_per_minute")]


def test_several_keys_of_one_user_speak_for_him_together() -> None:
    ring = KeyRing()
    for terms in (KeyTerms(weight=2.0), KeyTerms(weight=0.5, training_share=0.25), KeyTerms(requests_per_minute=1)):
        ring.add(new_key("cy", 1.0, terms=terms)[0])
    assert ring.terms_of("cy") == KeyTerms(weight=2.0, training_share=0.25)
    assert ring.terms_of("nobody") == KeyTerms()
    for key in [*ring._keys.values()]:
        ring.change(key.id, KeyTerms(weight=3.0))
        assert ring.terms_of("cy").weight == 3.0
        ring.remove(key.id)
    assert ring.terms_of("cy") == KeyTerms()


@pytest.mark.parametrize(
    "raw", [{"weight": 0}, {"training_share": 1.5}, {"requests_per_minute": -1}, {"speed": 1}, {"weight": "much"}]
)
def test_terms_that_mean_nothing_are_refused(raw: dict[str, Json]) -> None:
    with pytest.raises(ValueError):
        KeyTerms.from_json(raw)
