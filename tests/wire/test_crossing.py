"""Nobody reads, changes or ends what is another user's, whatever he calls it: the short form of tests/hardening."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from openclaw_rl.gateway.api.openapi import OPERATIONS
from tests.hardening.crossing import BODIES, Household, admin_paths, cross, routes
from tests.server import Server
from tests.wire.asking import CHAT, user


@pytest.fixture(scope="module")
def household(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Household]:
    with Server(tmp_path_factory.mktemp("crossing") / "data") as server:
        made = Household(server)
        yield made
        made.close()


def test_no_route_is_forgotten() -> None:
    assert routes() == {(one.verb, one.path) for one in OPERATIONS}
    assert set(BODIES) == {one.path for one in OPERATIONS}, "say what a request to a new route looks like"


@pytest.mark.parametrize("path", sorted(admin_paths()))
def test_what_changes_the_server_is_not_reached_from_outside(household: Household, path: str) -> None:
    for verb in ("GET", "POST", "DELETE"):
        answer = httpx.request(
            verb,
            household.server.url + path.replace("{id}", household.ann_key_id),
            headers={"Authorization": f"Bearer {household.bob}"},
        )
        assert answer.status_code in (404, 405), path


def test_no_name_opens_what_is_another_s(household: Household) -> None:
    assert cross(household, every=23) > 100


def test_the_same_request_under_the_same_names_is_bob_s_own(household: Household) -> None:
    before = household.state()
    names = {"X-Session-Id": "diary", "Idempotency-Key": "ann-once", "Authorization": f"Bearer {household.bob}"}
    history = [user("hi"), {"role": "assistant", "content": "You said: hi"}, user("and on")]
    answer = httpx.post(f"{household.server.url}{CHAT}", json={"messages": history}, headers=names)
    assert answer.headers["X-OpenClaw-RL-Turn"].startswith("bob/diary.")
    assert household.state() == before
