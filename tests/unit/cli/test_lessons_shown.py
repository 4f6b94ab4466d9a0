"""What `inspect`, `sessions` and `doctor` show of learning."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from openclaw_rl.cli.doctor.checks import check_learning
from openclaw_rl.cli.inspect.sessions import show_session, show_sessions
from openclaw_rl.cli.inspect.text import add_sample, add_verdict, backlog_text, mask_text, sample_line
from openclaw_rl.cli.screen import make_console
from openclaw_rl.judge.rules import verdict_of
from openclaw_rl.protocols import Renderer
from openclaw_rl.store import SqliteStore, StoreReader
from openclaw_rl.types import Sample, Verdict, Vote
from openclaw_rl.views.health import Backlog, read_backlog
from openclaw_rl.views.lessons import signed
from openclaw_rl.views.tokens import TokenTexts
from tests.factories.lessons import HINT, SESSION, fill, make_sample, settings
from tests.factories.turns import make_turn
from tests.unit.judge.talk import talk

CAPS = pytest.CaptureFixture[str]


@pytest.fixture
async def data_dir(tmp_path: Path) -> Path:
    await fill(tmp_path)
    return tmp_path


def styles(text: Text) -> list[tuple[str, str]]:
    """Each stretch of a text with its style."""
    return [(text.plain[span.start : span.end], str(span.style)) for span in text.spans]


def test_of_a_claim_is_shown_what_it_is_and_what_is_left_without_it() -> None:
    mixed = "Mind this correction: it has 48. Answer in one sentence."
    vote = Vote(question="claim", score=1, hint=mixed, rest="Answer in one sentence.", raw="it has 48")
    text = Text()
    add_verdict(text, "judged", "rules", "rules-1", Verdict(outcome="scored", score=-1, votes=(vote,)), limit=100)
    assert "vote       claim +1  it has 48; without it: Answer in one sentence." in text.plain
    text = Text()
    bare = Verdict(outcome="scored", score=-1, votes=(replace(vote, rest=""),))
    add_verdict(text, "judged", "rules", "rules-1", bare, limit=100)
    assert text.plain.endswith("vote       claim +1  it has 48")


def test_words_in_an_unknown_language_are_shown_with_the_remedy() -> None:
    text = Text()
    verdict = verdict_of(talk("Bitte kürzer und ohne Listen."))
    add_verdict(text, "judged", "rules", "rules-2", verdict, limit=100)
    told = " ".join(text.plain.split())
    assert "abstained by rules (rules-2): unknown language: the rules read English and Chinese" in told
    assert "set evaluation.judge=endpoint" in told


async def test_each_turn_shows_its_votes_hints_and_sample_or_why_not(data_dir: Path, capsys: CAPS) -> None:
    show_session(settings(data_dir), SESSION, index=None, as_json=False)
    text = capsys.readouterr().out
    assert "\x1b" not in text
    _, first, second, third, last = text.split("\n\n")
    for line in (
        "next       user: no, [31mshorter please",
        "judged     −1  by rules (rules-1): asks for a change",
        "vote       score −1  change request: shorter",
        "vote       score failed no verdict in the answer",
        f"vote       hint  +1  {HINT}",
        f"hint       {HINT}",
        "sample     reward −1  advantage −0.8  1 RL + 1 OPD  2 of 3 tokens",
        f"teacher    {HINT}  shares 2 of 3 prompt tokens",
        "tokens     500000 500001 500002",
    ):
        assert f"\n  {line}" in first
    assert "\n  judged     abstained  by rules (rules-1): the votes tie" in second
    assert "\n  sample     none: abstained  combine" in second
    assert "\n  judged     not yet" in third
    assert "sample" not in third
    assert "judged" not in last, "nothing has followed it"


async def test_one_turn_shows_what_the_judge_said_word_for_word(data_dir: Path, capsys: CAPS) -> None:
    show_session(settings(data_dir), f"{SESSION}.0", index=None, as_json=False)
    text = capsys.readouterr().out
    assert f"[HINT_START]{HINT}[HINT_END]" in text
    assert "Well …" in text


async def test_json_has_judgement_credit_and_samples(data_dir: Path, capsys: CAPS) -> None:
    show_session(settings(data_dir), SESSION, index=None, as_json=True)
    shown = json.loads(capsys.readouterr().out)
    assert shown["learning"] == {"paused": None, "training_paused": None, "unjudged": 1, "uncredited": 0}
    first, second, third, _ = shown["turns"]
    judged = first["judgement"]
    assert {key: judged[key] for key in ("judge", "prompt_version", "outcome", "score", "hints", "num_evidence")} == {
        "judge": "rules",
        "prompt_version": "rules-1",
        "outcome": "scored",
        "score": -1,
        "hints": [HINT],
        "num_evidence": 1,
    }
    assert judged["votes"][1] == {
        "question": "score",
        "score": None,
        "hint": "",
        "rest": "",
        "failure": "no verdict in the answer",
        "raw": "Well …",
    }
    assert first["credit"] == {"rule": "combine", "credited_at": 121.0, "reward": -1.0, "skip": None}
    (sample,) = first["samples"]
    assert sample["prompt_ids"] == first["prompt_ids"]
    assert sample["response_ids"] == first["token_ids"]
    assert sample["loss_mask"] == [0, 1, 1]
    assert sample["advantages"] == pytest.approx([-0.8] * 3)
    assert sample["candidates"] == [{"hint": HINT, "num_shared": 2, "suffix_ids": [5, 6, 7]}]
    assert (second["judgement"]["outcome"], second["judgement"]["score"]) == ("abstained", None)
    assert (second["credit"]["skip"], second["samples"]) == ("abstained", [])
    assert (third["judgement"], third["credit"], third["samples"]) == (None, None, [])


def test_tokens_are_coloured_by_what_is_done_to_them() -> None:
    sample = replace(make_sample(make_turn(token_ids=(1, 2, 3, 4))), advantages=(0.5, 0.5, -0.5, 0.0))
    text = mask_text(sample, ["a", "b", "c", "d"], limit=None)
    assert styles(text) == [("a", "dim"), ("b", "green"), ("c", "red"), ("d", "blue")]
    only_hints = replace(sample, w_rl=0.0)
    assert [style for _, style in styles(mask_text(only_hints, list("abcd"), limit=None))] == ["dim", *["blue"] * 3]


def test_a_mask_fits_its_line_and_steers_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    sample = make_sample(make_turn(token_ids=tuple(range(20))))
    text = mask_text(sample, ["wo\n"] * 20, limit=20)
    assert text.plain == "wo⏎" * 6 + "…"
    make_console().print(mask_text(sample, ["\x1b[31m"] * 20, limit=None), soft_wrap=True)
    assert capsys.readouterr().out == "[31m" * 20 + "\n"


def test_a_rewrite_and_an_answer_off_the_policy_say_so() -> None:
    sample = replace(
        make_sample(make_turn(2)), kind="rewrite", prompt_index=1, on_policy=False, advantages=(0.2, 0.1, 1.0)
    )
    assert sample_line(sample).plain == (
        "reward −1  advantage +0.1 … +1  1 RL + 1 OPD  2 of 3 tokens  rewrite: answers #1  off-policy"
    )


@pytest.mark.parametrize(
    ("value", "shown"),
    [(1, "+1"), (-1.0, "−1"), (0.0, "0"), (-0.0, "0"), (0.004, "0"), (-0.256, "−0.26"), (10.0, "+10")],
)
def test_signs(value: float, shown: str) -> None:
    assert signed(value) == shown


async def test_tokens_are_decoded_by_the_models_own_tokenizer(
    tmp_path: Path, model: Path, renderer: Renderer, capsys: CAPS
) -> None:
    digest = hashlib.sha256((model / "tokenizer.json").read_bytes()).hexdigest()[:12]
    ids = (*renderer.encode("Grün pulls 🌍."), 2)
    await fill(tmp_path, model=f"smollm2-135m-instruct#{digest}", token_ids=ids)
    config = settings(tmp_path, f"model.checkpoint_path={model}")
    show_session(config, SESSION, index=None, as_json=False)
    assert "\n  tokens     Grün pulls 🌍.<|im_end|>" in capsys.readouterr().out
    texts = TokenTexts.find(config.model)
    assert len(texts.texts(ids, f"x#{digest}")) == len(ids)
    assert texts.texts(ids[:2], "x#000000000000") == [f"{ids[0]} ", f"{ids[1]} "], "another model's ids"
    assert texts.texts(ids[:1], "scripted") == [f"{ids[0]} "]
    missing = settings(tmp_path, f"model.checkpoint_path={tmp_path}/none")
    assert TokenTexts.find(missing.model).texts(ids[:1], f"x#{digest}") == [f"{ids[0]} "]


async def test_a_pause_is_seen_by_everyone_who_looks(data_dir: Path, capsys: CAPS) -> None:
    async with await SqliteStore.open(data_dir) as store:
        await store.lessons.set_flag("judge.paused", "it calls a known complaint good")
    show_session(settings(data_dir), SESSION, index=None, as_json=False)
    show_sessions(settings(data_dir).store, user=None, limit=None, as_json=False)
    for shown in capsys.readouterr().out.split("session  ", 1):
        assert "Learning is paused: it calls a known complaint good" in shown
    found = read_backlog(StoreReader.open(data_dir))
    assert found == Backlog(paused="it calls a known complaint good", num_unjudged=1, num_uncredited=0)
    finding = check_learning(found)
    assert (finding.state, finding.text) == ("remark", "paused: it calls a known complaint good")
    assert "openclaw-rl judge --replay" in finding.remedy


def test_how_learning_stands_in_words() -> None:
    idle = Backlog(paused=None, num_unjudged=0, num_uncredited=0)
    assert (backlog_text(idle).plain, check_learning(idle).text) == ("", "every reaction is judged")
    busy = Backlog(paused=None, num_unjudged=3, num_uncredited=1)
    assert backlog_text(busy).plain == "Turns that wait: 3 for the judge, 1 for credit\n"
    assert (check_learning(busy).state, check_learning(None).state) == ("ok", "ok")


def test_a_teacher_is_shown_with_what_it_shares() -> None:
    text = Text()
    sample: Sample = make_sample(make_turn())
    add_sample(text, sample, ["a", "b", "c"], limit=60)
    console = Console(width=200, color_system=None)
    with console.capture() as seen:
        console.print(text)
    assert f"teacher    {HINT}  shares 2 of 3 prompt tokens" in seen.get()
