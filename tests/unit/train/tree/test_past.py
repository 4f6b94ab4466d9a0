"""What is remembered changes no number: readings behind a known beginning are those of a reader that knows nothing."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from openclaw_rl.model.network import Network
from openclaw_rl.train.passes.reader import NetworkReader, Reader, RecallingReader
from openclaw_rl.train.passes.sequences import Sequenced
from openclaw_rl.train.tree.fold import Fold
from openclaw_rl.train.tree.past import MIN_TOKENS, cut
from tests.factories.networks import random_network, shape

IDS = tuple(random.Random(1).choices(range(10, 97), k=400))


@pytest.fixture(scope="module", params=["llama", "qwen3"])
def network(request: pytest.FixtureRequest) -> Network:
    return random_network(shape(request.param))


def hidden(reader: Reader, sequences: Sequence[Sequenced]) -> list[Tensor]:
    with torch.no_grad():
        return [reading.hidden for reading in reader.read(sequences)]


def hinted(at: int, *, answer: int = 5, num_hints: int = 3) -> list[Sequenced]:
    """A turn whose context ends there, with hints."""
    return [Sequenced((*IDS[:at], 3 + hint, 9), IDS[at : at + answer]) for hint in range(num_hints)]


def test_turn_after_turn(network: Network) -> None:
    recalling, plain = RecallingReader(network), NetworkReader(network)
    for at in (120, 150, 151, 300, 200, 30):
        for mine, theirs in zip(hidden(recalling, hinted(at)), hidden(plain, hinted(at)), strict=True):
            torch.testing.assert_close(mine, theirs, atol=2e-5, rtol=1e-4)


def test_only_what_is_new_is_computed(network: Network) -> None:
    recalling = RecallingReader(network)
    hidden(recalling, hinted(200))
    past = recalling._past
    assert past is not None
    assert past.ids.tolist()[:200] == list(IDS[:200])
    found = cut(Fold(hinted(230)).tree(), past)
    assert found.num_known == 200
    assert len(found.tree) == 30 + 3 * (2 + 4)
    assert cut(Fold([Sequenced(IDS[5:], (7,))]).tree(), past).num_known == 0, "it begins otherwise"
    assert cut(Fold([Sequenced(IDS[:MIN_TOKENS], (7,))]).tree(), past).num_known == 0, "too short"


def test_what_is_asked_about_or_left_from_is_computed(network: Network) -> None:
    recalling = RecallingReader(network)
    hidden(recalling, hinted(200))
    past = recalling._past
    asked = [Sequenced(IDS[:100], IDS[100:110]), *hinted(220)]
    assert cut(Fold(asked).tree(), past).num_known == 99
    leaving = [*hinted(90), *hinted(220)]
    assert cut(Fold(leaving).tree(), past).num_known == 89
    for sequences in (asked, leaving):
        mine, theirs = hidden(recalling, sequences), hidden(NetworkReader(network), sequences)
        torch.testing.assert_close(torch.cat(mine), torch.cat(theirs), atol=2e-5, rtol=1e-4)


def test_short_questions_are_not_remembered(network: Network) -> None:
    recalling = RecallingReader(network)
    hidden(recalling, hinted(200))
    hidden(recalling, [Sequenced((5, 6, 7), (8,))])
    assert recalling._past is not None
    assert len(recalling._past) > 200


def test_what_is_remembered_is_copied_only_for_much_that_is_new(network: Network) -> None:
    recalling = RecallingReader(network)
    hidden(recalling, hinted(200))
    first = recalling._past
    for at in (200, 210, 190 + MIN_TOKENS):
        hidden(recalling, hinted(at))
        assert recalling._past is first, at
    hidden(recalling, hinted(210 + MIN_TOKENS))
    assert recalling._past is not None
    assert len(recalling._past) >= 210 + MIN_TOKENS


@settings(max_examples=30)
@given(st.lists(st.lists(st.tuples(st.integers(1, 180), st.integers(1, 4)), min_size=1, max_size=4), max_size=4))
def test_any_history_of_questions(history: list[list[tuple[int, int]]]) -> None:
    network = random_network(shape("llama"))
    recalling, plain = RecallingReader(network), NetworkReader(network)
    for turns in history:
        sequences = [sequence for at, num in turns for sequence in hinted(at, num_hints=num)]
        mine, theirs = hidden(recalling, sequences), hidden(plain, sequences)
        torch.testing.assert_close(torch.cat(mine), torch.cat(theirs), atol=2e-5, rtol=1e-4)


def test_a_root_in_front_of_the_one_that_is_known(network: Network) -> None:
    recalling = RecallingReader(network)
    hidden(recalling, hinted(200))
    others = [Sequenced((5, 6, 7), (8, 9)), Sequenced((5, 6, 8, 8), (8, 9))]
    sequences = [*others, *hinted(220)]
    assert cut(Fold(sequences).tree(), recalling._past).num_known == 200
    mine, theirs = hidden(recalling, sequences), hidden(NetworkReader(network), sequences)
    torch.testing.assert_close(torch.cat(mine), torch.cat(theirs), atol=2e-5, rtol=1e-4)


def test_what_does_not_fit_is_not_remembered(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    recalling = RecallingReader(network)
    monkeypatch.setattr("openclaw_rl.train.passes.reader.PAST_SHARE", 0.0)
    hidden(recalling, hinted(200))
    assert recalling._past is None
