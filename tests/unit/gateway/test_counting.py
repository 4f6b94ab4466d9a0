"""A body of a million values is told before it becomes a million objects; one long text is not taken for one."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_rl.gateway.api.dialects import counting
from openclaw_rl.gateway.api.dialects.counting import has_more_values
from openclaw_rl.types import Json

JSON: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.integers(-5, 5) | st.text(st.sampled_from('ab,[{"\\:é'), max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.sampled_from('k,"\\'), max_size=3), inner),
    max_leaves=30,
)


def num_values(value: Json) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(num_values, inner))


def num_containers(value: Json) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, dict | list) + sum(map(num_containers, inner))


@given(value=JSON, limit=st.integers(0, 40), slab=st.sampled_from([2, 3, 7, 1 << 18]))
def test_counts_what_is_there(value: Json, limit: int, slab: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "_SLAB_BYTES", slab)
        is_over = has_more_values(orjson.dumps(value), limit)
    if num_values(value) - 1 > limit:
        assert is_over
    if num_values(value) + num_containers(value) <= limit:
        assert not is_over


@pytest.mark.parametrize(
    ("piece", "is_over"),
    [
        (b"[],", True),
        (b"{},", True),
        (b"0,", True),
        (b'"",', True),
        (b"[", True),
        (b'",,,"', True),
        (b'"a,b,[{",', False),
        (b'"' + b"\\\\" * 40 + b'",', False),
    ],
)
def test_many_and_few(piece: bytes, is_over: bool) -> None:
    num = 1000 if is_over else 20
    assert has_more_values(b"[" + piece * num + b"0]", 100) is is_over


def test_the_shortest_body_with_too_many_is_counted() -> None:
    assert has_more_values(b"[" + b"0," * 101 + b"0]", 100)


def test_a_text_full_of_signs_is_one_value() -> None:
    for text in (",[{" * 100_000, '\\"' * 100_000, "\\" * 100_001, '",' * 100_000):
        assert not has_more_values(orjson.dumps({"text": text}), 100)


@given(raw=st.binary(max_size=60) | st.text(st.sampled_from('"\\,[a'), max_size=40).map(str.encode))
def test_anything_else_comes_to_an_end(raw: bytes) -> None:
    has_more_values(raw, 2)
