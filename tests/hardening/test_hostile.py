"""Thousands of requests that no client would send, over every route there is: none is answered by a defect of ours."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from openclaw_rl.gateway.api.openapi import OPERATIONS, Operation
from tests.hardening.report import report
from tests.wire.test_fuzz import FUZZ, HEADER_VALUES, HEADERS, Target, encoded, fuzzed, mutated, odd_text
from tests.wire.test_openapi import bodies

Attack = tuple[str, bytes, dict[str, str]]
"""Path, body and headers."""


def attacks(operation: Operation) -> st.SearchStrategy[Attack]:
    """What the description of a route makes up, then something wrong with it: in the body, the path, the query and the
    headers."""
    fields = operation.query.model_json_schema()["properties"] if operation.query else {"stream": {}}
    asked = {name: odd_text() for name in fields if name != "wait_s"}  # or it waits, as it is told to
    query = st.fixed_dictionaries({}, optional=asked).map(urlencode)
    name = odd_text().map(lambda text: quote(text, safe=""))
    body: st.SearchStrategy[bytes] = st.binary(max_size=200)
    if operation.body is not None:
        made = bodies(operation)
        body = st.one_of(body, made.map(encoded), made.flatmap(lambda one: mutated([one])).map(encoded))
    headers = st.dictionaries(st.sampled_from(HEADERS), HEADER_VALUES, max_size=2)

    def attack(draw: Any) -> Attack:
        path = re.sub(r"\{\w+\}", lambda _: draw(name), operation.path)
        return f"{path}?{draw(query)}", draw(body), draw(headers)

    return st.composite(attack)()


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("num_requests", [800, pytest.param(10_000, marks=pytest.mark.hardening)])
def test_no_request_is_answered_by_a_defect(tmp_path: Path, num_requests: int) -> None:
    """`Target` refuses a 5xx that says nothing of a remedy; `fuzzed` reads the log in the end."""
    statuses: Counter[int] = Counter()
    with fuzzed(tmp_path) as target:
        for operation in OPERATIONS:
            send_all(target, operation, -(-num_requests // len(OPERATIONS)), statuses)
        assert target.num_requests >= num_requests
        unexplained = [status for status in statuses if status >= 500 and status != 503]
        report(
            "hostile requests",
            requests=target.num_requests,
            routes=len(OPERATIONS),
            refused=sum(many for status, many in statuses.items() if 400 <= status < 500),
            unexplained_5xx=len(unexplained),
        )


def send_all(target: Target, operation: Operation, num: int, statuses: Counter[int]) -> None:
    @seed(26)
    @settings(FUZZ, max_examples=num)
    @given(attack=attacks(operation))
    def send(attack: Attack) -> None:
        path, body, headers = attack
        statuses[target.send(operation.verb.upper(), path, body, headers)] += 1

    before = target.num_requests
    send()
    while target.num_requests < before + num:  # a route of few words runs out of new ones
        send()


def test_every_route_is_attacked() -> None:
    """What is not described here would be left out; the routes and their description are held equal elsewhere."""
    assert {"/v1/chat/completions", "/v1/rollouts", "/v1/responses/{id}"} <= {one.path for one in OPERATIONS}
