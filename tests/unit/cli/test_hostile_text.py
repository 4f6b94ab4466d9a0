"""Text that others wrote, in every field that holds text, through every command that shows it: no terminal obeys it."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any
from unicodedata import category

import pytest

from openclaw_rl.cli import app as cli
from openclaw_rl.cli.learn.importing import import_rollouts, read_rollouts
from openclaw_rl.gateway.api.rollouts import rollout_json
from openclaw_rl.store import SqliteStore
from openclaw_rl.types import (
    TRAINING_PAUSED,
    ApiKey,
    Completion,
    Credit,
    Feedback,
    Judgement,
    Message,
    NextState,
    Step,
    Tool,
    ToolCall,
    TurnRecord,
    Verdict,
    Version,
    VersionSpan,
    Vote,
)
from tests.factories.lessons import make_sample
from tests.factories.turns import make_session, make_turn
from tests.factories.weights import folder_ref

CAPS = pytest.CaptureFixture[str]
EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\u2066\u200b\x7f\r\b"
KEPT = "\n\t\u200c\u200d"


def evil(word: str) -> Any:
    return f"{word}{EVIL}{word}"


def hidden_in(text: str) -> list[str]:
    return [char for char in text if category(char) in ("Cc", "Cf") and char not in KEPT]


SAID = Message(
    role="assistant",
    content=evil("content"),
    reasoning=evil("reasoning"),
    tool_calls=(ToolCall(id=evil("id"), name=evil("name"), arguments=evil("arguments")),),
)
TURN = make_turn(
    session=evil("s-1"),
    messages=(Message(role="tool", content=evil("asked"), name=evil("n"), tool_call_id=evil("i")),),
    tools=(Tool(name=evil("tool"), description=evil("description"), parameters={evil("p"): evil("v")}),),
    message=SAID,
    dialect=evil("chat"),
    model=evil("model"),
    stop=(evil("stop"),),
    label=evil("label"),
    completion=Completion(
        token_ids=(5, 6),
        logprobs=(-0.1, -0.2),
        finish_reason=evil("stop"),
        version_spans=(VersionSpan(evil("v0"), 0, 2),),
    ),
)
VERDICT = Verdict(
    outcome="scored",
    score=-1,
    reason=evil("reason"),
    votes=(
        Vote(question="score", score=-1, raw=evil("raw")),
        Vote(question="score", score=None, failure=evil("failure"), raw=evil("raw")),
        Vote(question="hint", score=1, hint=evil("hint"), raw=evil("raw")),
    ),
    hints=(evil("hint"),),
)


async def fill(folder: Path) -> None:
    """One of everything that has text in it."""
    async with await SqliteStore.open(folder) as store:
        lessons = store.lessons
        session = make_session(TURN.session, user=evil("ann"), client=evil("client"), key=evil("key"))
        await store.put_session(session)
        await store.put_turn(TURN)
        await store.put_turn(replace(TURN, index=1))
        await store.put_key(ApiKey(id=evil("k"), user=evil("ann"), digest=b"d", created_at=1.0, label=evil("label")))
        for index in (0, 1):
            next_state = NextState(session=TURN.session, index=index, messages=(SAID,), arrived_at=1.0)
            await store.put_next_state(next_state)
        said = Feedback(session=TURN.session, index=0, user=evil("ann"), given_at=1.0, score=1, text=evil("text"))
        await store.put_feedback(said)
        (held,) = await lessons.lease("judge", limit=1, ttl_s=60.0)
        facts: dict[str, Any] = {"session": TURN.session, "index": held.index, "num_evidence": held.num_evidence}
        judged = Judgement(**facts, judge=evil("rules"), prompt_version=evil("1"), judged_at=1.0, verdict=VERDICT)
        assert await lessons.put_judgement(held, judged)
        (held,) = await lessons.lease("credit", limit=1, ttl_s=60.0)
        sample = make_sample(TURN, line="local")
        credit = Credit(**facts, rule=evil("rule"), credited_at=1.0, reward=-1.0, samples=(sample,))
        assert await lessons.put_credit(held, credit)
        step = Step(line="local", number=1, state="planned", planned_at=1.0, seed=0, parent=0, sample_ids=(sample.id,))
        await lessons.plan_step(step)
        weights = folder_ref("/v1", "ab")
        version = Version(
            line="local", number=1, parent=0, state="candidate", created_at=1.0, model=evil("model"), weights=weights
        )
        await lessons.finish_step(replace(step, state="done", reason=evil("reason"), metrics={evil("m"): 1.0}), version)
        await lessons.set_version_state("local", 1, "rejected", reason=evil("reason"))
        await lessons.set_flag(TRAINING_PAUSED, evil("full disk"))


COMMANDS: tuple[tuple[str, ...], ...] = (
    ("sessions",),
    ("inspect", TURN.session),
    ("inspect", TURN.session, "--turn", "0"),
    ("inspect", TURN.id),
    ("inspect", evil("nobody")),
    ("versions",),
    ("versions", "1"),
    ("versions", "9", "--user", evil("ann")),
    ("why", "v1"),
    ("why", TURN.id),
    ("why", evil("v9")),
    ("keys", "list"),
    ("keys", "revoke", evil("k")),
    ("judge", "--turn", TURN.id),
    ("train", "--dry-run"),
    ("connect", evil("client")),
    ("undo", evil("s-9.0")),
    ("forget", "--session", evil("s-9"), "--yes"),
    ("rollback", "1", "--user", evil("ann")),
    ("sessions", "--user", evil("ann")),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("hostile")
    asyncio.run(fill(made))
    return made


def run(capsys: CAPS, folder: Path, *words: str) -> str:
    with pytest.raises(SystemExit):
        cli.main([*words, "--data-dir", str(folder)])
    shown = capsys.readouterr()
    assert hidden_in(shown.out + shown.err) == []
    return shown.out


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words[:1]) + str(len(words)))
def test_no_command_shows_what_a_terminal_obeys(folder: Path, capsys: CAPS, words: tuple[str, ...]) -> None:
    run(capsys, folder, *words)


@pytest.mark.parametrize("words", [("sessions",), ("inspect", TURN.session), ("versions",), ("why", TURN.id)])
def test_json_says_it_all_and_harms_nobody(folder: Path, capsys: CAPS, words: tuple[str, ...]) -> None:
    shown = json.loads(run(capsys, folder, *words, "--json"))
    assert any(EVIL in text for text in texts(shown)), "nothing is lost"


def texts(value: Any) -> list[str]:
    match value:
        case str():
            return [value]
        case dict():
            return [found for pair in value.items() for one in pair for found in texts(one)]
        case list():
            return [found for one in value for found in texts(one)]
    return []


async def test_what_a_file_brings_harms_nobody_either(tmp_path: Path, capsys: CAPS) -> None:
    line = rollout_json(TurnRecord(turn=TURN, next_state=None, feedback=()))
    rollouts = tmp_path / "rollouts"
    rollouts.mkdir()
    (rollouts / "rollouts.jsonl").write_text(json.dumps(line) + "\n")
    async with await SqliteStore.open(tmp_path / "data") as store:
        assert (await import_rollouts(store, read_rollouts(rollouts))).new == 1
    for words in (("sessions",), ("inspect", TURN.session), ("why", TURN.id)):
        await asyncio.to_thread(run, capsys, tmp_path / "data", *words)


def test_every_text_column_was_filled(folder: Path) -> None:
    """So that a column that is new is not forgotten here."""
    ours = {
        *("meta.name", "meta.value", "session.episode", "turn.kind", "turn.skip", "turn.request_digest", "turn.chain"),
        *("task.stage", "task.owner", "judgement.outcome", "credit.skip", "sample.id", "sample.line", "sample.kind"),
        *("step.line", "step.state", "step.sample_ids", "step.replayed_ids", "version.line", "version.state"),
        *("version.sha256", "version.gate", "version.weights", "turn.sampling", "api_key.terms"),
    }
    missing = []
    with sqlite3.connect(folder / "store.sqlite3") as connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            for column in connection.execute(f"PRAGMA table_info({table})").fetchall():
                name = f"{table}.{column[1]}"
                if column[2] != "TEXT" or name in ours or table in ("baseline", "episode"):
                    continue
                values = [str(row[0]) for row in connection.execute(f'SELECT "{column[1]}" FROM {table}')]
                if not any("\x1b" in value or "\\u001b" in value for value in values):
                    missing.append(name)
    connection.close()
    assert not missing
