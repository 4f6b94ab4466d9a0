"""Links and sessions of the page: once, for a while, and not more of them than are kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from openclaw_rl.dashboard.server.door import _MAX_LINKS, LINK_S, SESSION_S, PageDoor
from openclaw_rl.errors import RequestError
from openclaw_rl.gateway.access.auth import KeyRing, new_key
from openclaw_rl.types import AtWork, Episode


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def door(path: Path, clock: Clock, ring: KeyRing | None = None) -> tuple[PageDoor, str, KeyRing]:
    ring = ring or KeyRing()
    key, secret = new_key("local", 0.0, secret="ocrl-local")
    ring.add(key)
    return PageDoor(ring, path / "page.json", owner_key=key.id, clock=clock), secret, ring


def test_a_link_is_dead_once_it_was_used_or_its_time_is_over(tmp_path: Path, clock: Clock) -> None:
    made, _, _ = door(tmp_path, clock)
    link = made.new_link()
    assert made.key_of(made.use_link(link)) is not None
    late = made.new_link()
    clock.now += LINK_S
    for dead in (link, late, "", "guess"):
        with pytest.raises(RequestError, match="openclaw-rl page"):
            made.use_link(dead)


def test_only_so_many_links_are_kept(tmp_path: Path, clock: Clock) -> None:
    made, _, _ = door(tmp_path, clock)
    links = [made.new_link() for _ in range(_MAX_LINKS + 1)]
    with pytest.raises(RequestError):
        made.use_link(links[0])
    assert made.use_link(links[-1])


def test_a_session_ends_and_outlives_the_process(tmp_path: Path, clock: Clock) -> None:
    made, secret, ring = door(tmp_path, clock)
    cookie = made.sign_in(f" {secret}\n")
    again, _, _ = door(tmp_path, clock, ring)
    assert again.key_of(cookie) == made.key_of(cookie) is not None
    again.sign_out(cookie)
    assert again.key_of(cookie) is None
    assert door(tmp_path, clock, ring)[0].key_of(cookie) is None
    other = again.sign_in(secret)
    clock.now += SESSION_S
    assert again.key_of(other) is None
    assert again.key_of(None) is None


def test_nothing_that_opens_stands_in_the_file(tmp_path: Path, clock: Clock) -> None:
    made, secret, _ = door(tmp_path, clock)
    cookie = made.sign_in(secret)
    kept = (tmp_path / "page.json").read_text()
    assert cookie not in kept
    assert secret not in kept
    assert (tmp_path / "page.json").stat().st_mode & 0o777 == 0o600
    assert len(json.loads(kept)) == 1


@pytest.mark.parametrize("kept", ["", "{", "[1]", '[{"digest": "x"}]', "null"])
def test_a_damaged_file_signs_everybody_out_and_nobody_in(tmp_path: Path, clock: Clock, kept: str) -> None:
    (tmp_path / "page.json").write_text(kept)
    made, secret, _ = door(tmp_path, clock)
    assert made.key_of("x") is None
    assert made.key_of(made.sign_in(secret)) is not None


def test_the_key_of_an_attempt_opens_no_page(tmp_path: Path, clock: Clock) -> None:
    made, _, ring = door(tmp_path, clock)
    key, secret = new_key("e-1", 0.0)
    episode = Episode(id="e-1", environment="terminal", task="t", group="g", attempt=0)
    ring.add(key, AtWork(episode=episode, learn=True))
    with pytest.raises(RequestError, match="attempt"):
        made.sign_in(secret)
    assert ring.users() == ["local"]
