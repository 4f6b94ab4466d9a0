"""The files of the heads: what is learned from and checked by whom, and what is loaded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from openclaw_rl.errors import JudgeError
from openclaw_rl.judge.heads import fit, model
from openclaw_rl.judge.heads.check import Passed, check_opinions, check_scores
from openclaw_rl.judge.heads.examples import CHECK, EXAMPLES, FOLDER, Said, load
from openclaw_rl.judge.heads.model import GramHeads, HiddenHeads
from openclaw_rl.model.embedded import SMOLLM2
from tests.unit.judge.heads.reading import Reader, fitted, state, states_of
from tests.unit.judge.talk import talk

HEADS = fitted()


def test_nobody_who_is_learned_from_is_checked_by() -> None:
    examples, check = load(EXAMPLES), load(CHECK)
    assert len(examples) > 1800
    assert len(check) > 200
    assert not {one.writer for one in examples} & {one.writer for one in check}
    said = [{(one.said[-2].lower(), one.next.lower()) for one in each} for each in (examples, check)]
    assert not said[0] & said[1]
    assert len({one.lang for one in examples}) > 10


def test_labels_agree_with_each_other() -> None:
    for one in (*load(EXAMPLES), *load(CHECK)):
        assert one.score in (-1, 0, 1)
        assert not (one.matter and one.score == 1), one.next


def test_a_reaction_is_read_with_what_it_is_about() -> None:
    prompt = Said.of(talk("shorter", request="x" * 900 + "end?", reply="y" * 900 + "stop.")).prompt
    assert prompt.startswith("User: xxx")
    assert prompt.endswith("stop.\n\nUser: shorter")
    assert len(prompt) < 650


def test_what_is_saved_is_loaded_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "heads.npz"
    HEADS.hidden.save(file, model="m")
    loaded = HiddenHeads.load(file, model="m")
    np.testing.assert_allclose(loaded.heads["score"].weights, HEADS.hidden.heads["score"].weights, atol=1e-6)
    assert loaded.layer == 1
    with pytest.raises(JudgeError, match="another model"):
        HiddenHeads.load(file, model="other")
    file.write_bytes(file.read_bytes()[:99])
    with pytest.raises(JudgeError, match="cannot be read"):
        HiddenHeads.load(file, model="m")


def test_the_shipped_files_are_those_of_the_shipped_examples() -> None:
    GramHeads.shipped()
    (name,) = [file.stem for file in FOLDER.glob("*.npz") if file != model.GRAMS_FILE]
    assert name == SMOLLM2.name


def test_fitting_the_heads_on_n_grams_again_gives_the_shipped_ones() -> None:
    again, shipped = GramHeads.fitted(load(EXAMPLES)), GramHeads.shipped()
    for question, head in shipped.heads.items():
        np.testing.assert_allclose(again.heads[question].weights, head.weights, atol=2e-3)


def test_the_beginning_of_the_examples_stands_for_all() -> None:
    first = fit.mixed(load(EXAMPLES))[: fit.MIN_EXAMPLES]
    assert {one.writer for one in first} == {one.writer for one in load(EXAMPLES)}
    assert {one.score for one in first} == {-1, 0, 1}


async def test_a_model_without_heads_gets_its_own_which_are_kept_if_they_pass(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    reader, cache = Reader(), tmp_path / "cache"
    HEADS.hidden.save(cache / f"heads-{model.model_digest(tmp_path)}.npz", model=model.model_digest(tmp_path))
    kept = await fit.heads_for(states_of(reader), tmp_path, "tiny", cache)
    assert reader.requests == []
    np.testing.assert_allclose(kept.hidden.mean, HEADS.hidden.mean, atol=1e-6)


async def test_heads_that_do_not_pass_the_check_set_are_not_kept(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    reader = Reader()
    reader.deaf = True
    with pytest.raises(JudgeError, match="the heads fitted for tiny do not pass the check set: .* right"):
        await fit.heads_for(states_of(reader), tmp_path, "tiny", tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


async def test_an_engine_that_is_too_slow_or_down_gives_no_heads() -> None:
    with pytest.raises(JudgeError, match="read 16 examples"):
        await fit.fit_for(states_of(Reader()), budget_s=1e-9)
    down = Reader()
    down.down = True
    with pytest.raises(JudgeError, match="no hidden states: the engine is not there"):
        await fit.fit_for(states_of(down))


def test_a_check_counts_signs_and_claims() -> None:
    cases = [one for one in load(CHECK) if one.score][:4]
    assert check_scores(cases, [one.score for one in cases]) == Passed(1.0, 0.0)
    assert not check_scores(cases, [None] * 4).is_enough
    assert not check_scores(cases, [-one.score for one in cases]).is_enough
    claims = [one for one in load(CHECK) if one.matter]
    opinions = HEADS.opinions([one.reaction for one in claims], np.array([state(one.next) for one in claims]))
    deaf = check_opinions(claims, [replace(one, matter=0.0) for one in opinions])
    assert (deaf.matter, deaf.is_enough) == (0.0, False)
