"""Whose cache a request uses: salts keep people, lines and private sessions apart, and say nothing about them."""

from __future__ import annotations

from dataclasses import replace

from openclaw_rl.gateway.access.salts import CacheSalts
from openclaw_rl.types import SYSTEM_SALT, Episode
from tests.factories.turns import make_session

ANN = make_session("one", user="ann")
BOX = Episode(id="e", environment="box", task="t", group="g", attempt=0)


def test_a_salt_belongs_to_one_user_on_one_line() -> None:
    salts = CacheSalts()
    assert salts.of(ANN) == salts.of(replace(ANN, id="two", client="other"))
    agent = replace(ANN, episode=BOX)
    others = (replace(ANN, user="bob"), agent, replace(agent, user="bob"), replace(ANN, user="ann1"))
    assert len({salts.of(ANN), *map(salts.of, others)}) == 5
    assert salts.of_user("ann") == salts.of(ANN)


def test_a_session_that_opted_out_has_a_salt_of_its_own() -> None:
    salts, private = CacheSalts(), replace(ANN, opted_out=True)
    others = (ANN, replace(private, id="two"), replace(private, user="bob"), replace(ANN, user="session", id="ann"))
    assert salts.of(private) not in map(salts.of, others)
    assert salts.touched_by(private) == salts.touched_by(ANN) == {salts.of(ANN), salts.of(private), SYSTEM_SALT}


def test_nobody_can_name_the_salt_of_another() -> None:
    first, second = CacheSalts().of(ANN), CacheSalts().of(ANN)
    assert first != second, "the key is this process's own"
    assert "ann" not in first
    assert first != SYSTEM_SALT
    assert first
