"""The description of the routes is true, and whatever it generates is answered: a success or a 4xx, never a 5xx."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any
from urllib.parse import quote, urlencode

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openclaw_rl.gateway.api.openapi import OPERATIONS, Operation, describe
from openclaw_rl.types import Json
from tests.wire.asking import log_lines
from tests.wire.test_fuzz import FUZZ, JSON, Target, encoded, fuzzed, mutated, odd_text

NUM_GENERATED, NUM_MUTATED, NUM_OTHERS = 450, 300, 120
"""For each route with a body: as described, and as described with something wrong in it. For each of the others."""
WITH_BODY = tuple(one for one in OPERATIONS if one.body is not None)
OTHERS = tuple(one for one in OPERATIONS if one.body is None)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with fuzzed(tmp_path_factory.mktemp("openapi")) as made:
        yield made


def test_every_route_is_described_and_every_described_route_is_there(target: Target) -> None:
    server = target.server
    assert httpx.get(f"{server.url}/openapi.json").json() == describe()
    for operation in OPERATIONS:
        path = re.sub(r"\{\w+\}", "x", operation.path)
        options = httpx.options(server.url + path)
        assert options.status_code == 405, f"{operation.path} is not there"
        verbs = set(options.headers["Allow"].split(","))
        described = {one.verb.upper() for one in OPERATIONS if one.path == operation.path}
        assert verbs - {"HEAD"} == described, operation.path
        unknown = httpx.request(operation.verb, server.url + path, headers={"Authorization": "Bearer wrong"})
        if not operation.open:
            assert unknown.status_code == 401, operation.path
    listed = {line["route"] for line in log_lines(server) if line["event"] == "request"} - {"unknown"}
    assert {re.sub(r":[^}]*", "", route) for route in listed} == {one.path for one in OPERATIONS}


@cache
def bodies(operation: Operation) -> st.SearchStrategy[Json]:
    described = describe((operation,))
    schema = described["paths"][operation.path][operation.verb]["requestBody"]["content"]["application/json"]["schema"]
    return generated(schema, described["components"]["schemas"])


def generated(schema: Json, known: dict[str, Json]) -> st.SearchStrategy[Json]:
    """Values as a schema describes them, as far as pydantic writes schemas."""
    match schema:
        case {"$ref": name}:
            return st.deferred(lambda: generated(known[name.rpartition("/")[2]], known))
        case {"anyOf": options}:
            return st.one_of([generated(one, known) for one in options])
        case {"const": value}:
            return st.just(value)
        case {"enum": values}:
            return st.sampled_from(values)
        case {"type": "object", "properties": fields}:
            made = {name: generated(one, known) for name, one in fields.items()}
            required = schema.get("required", ())
            optional = {name: one for name, one in made.items() if name not in required}
            return st.fixed_dictionaries({name: made[name] for name in required}, optional=optional)
        case {"type": "object"}:
            inner = schema.get("additionalProperties")
            values = generated(inner, known) if isinstance(inner, dict) else JSON
            return st.dictionaries(odd_text() | st.sampled_from(KEYS), values, max_size=4)
        case {"type": "array"}:
            return st.lists(generated(schema.get("items", {}), known), min_size=schema.get("minItems", 0), max_size=4)
        case {"type": "string"}:
            least, most = schema.get("minLength", 0), schema.get("maxLength", 40)
            return (odd_text() | st.sampled_from(WORDS)).filter(lambda text: least <= len(text) <= most)
        case {"type": "integer"}:
            return st.integers(schema.get("minimum", -(2**65)), schema.get("maximum", 2**65))
        case {"type": "number"}:
            least, most = schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum")
            return st.floats(least, most, allow_nan=False, allow_infinity=False)
        case {"type": "boolean"}:
            return st.booleans()
        case {"type": "null"}:
            return st.none()
        case _:
            return JSON


KEYS = ("type", "text", "role", "content", "name", "input", "id", "call_id", "tool_use_id", "output", "summary")
WORDS = (
    *("user", "assistant", "system", "developer", "tool", "auto", "required", "any", "none", "function", "custom"),
    *("text", "input_text", "output_text", "refusal", "image", "thinking", "tool_use", "tool_result", "reasoning"),
    *("message", "function_call", "function_call_output", "custom_tool_call", "item_reference", "resp_eA", "{}", "[]"),
)
"""What a description does not tell: the words by which forms inside of forms are told apart."""


@pytest.mark.parametrize("operation", WITH_BODY, ids=lambda one: one.path)
def test_what_the_description_generates(target: Target, operation: Operation) -> None:
    @settings(FUZZ, max_examples=NUM_GENERATED)
    @given(body=bodies(operation))
    def send(body: Json) -> None:
        target.send(operation.verb.upper(), operation.path, encoded(body))

    send()


@pytest.mark.parametrize("operation", WITH_BODY, ids=lambda one: one.path)
def test_what_it_generates_with_something_wrong_in_it(target: Target, operation: Operation) -> None:
    @settings(FUZZ, max_examples=NUM_MUTATED)
    @given(body=bodies(operation).flatmap(lambda body: mutated([body])))
    def send(body: Json) -> None:
        target.send(operation.verb.upper(), operation.path, encoded(body))

    send()


@pytest.mark.parametrize("operation", OTHERS, ids=lambda one: one.path)
def test_odd_names_and_queries(target: Target, operation: Operation) -> None:
    fields = operation.query.model_json_schema()["properties"] if operation.query else {"stream": {}}

    @settings(FUZZ, max_examples=NUM_OTHERS)
    @given(name=odd_text(), query=st.fixed_dictionaries({}, optional={one: odd_text() for one in fields}))
    def send(name: str, query: dict[str, Any]) -> None:
        path = re.sub(r"\{\w+\}", quote(name, safe=""), operation.path)
        asked = {key: value for key, value in query.items() if key != "wait_s"}  # or it waits, as it is told to
        target.send(operation.verb.upper(), f"{path}?{urlencode(asked)}", b"")

    send()


def test_that_was_enough(target: Target) -> None:
    """Runs after the others, on what they have sent."""
    assert target.num_requests >= 5000
