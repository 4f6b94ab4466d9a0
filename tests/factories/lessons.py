"""A store with one conversation, judged and credited: what commands that show learning are tested on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from openclaw_rl.config import Config, load_config
from openclaw_rl.store import SqliteStore
from openclaw_rl.types import (
    Candidate,
    Credit,
    Judgement,
    Message,
    NextState,
    Sample,
    Skip,
    Turn,
    Verdict,
    Vote,
)
from tests.factories.samples import sample_of
from tests.factories.turns import make_conversation, make_session

SESSION = "s-1"
HINT = "Answer more briefly."
COMPLAINT = Message(role="user", content="no, \x1b[31mshorter please")
SAID = Message(role="user", content="hm, what else?")
CORRECTED = Verdict(
    outcome="scored",
    score=-1,
    reason="asks for a change",
    votes=(
        Vote(question="score", score=-1, raw="change request: shorter"),
        Vote(question="score", score=None, failure="no verdict in the answer", raw="Well …"),
        Vote(question="hint", score=1, hint=HINT, raw=f"[HINT_START]{HINT}[HINT_END]"),
    ),
    hints=(HINT,),
)
TIED = Verdict(outcome="abstained", reason="the votes tie")


def settings(data_dir: Path, *overrides: str) -> Config:
    return load_config(env={}, overrides=[f"store.data_dir={data_dir}", *overrides]).config


def make_sample(turn: Turn, *, advantage: float = -0.8, created_at: float = 120.0, line: str = "ann") -> Sample:
    """All tokens of the answer but the first are trained."""
    size = len(turn.completion.token_ids)
    return sample_of(
        turn,
        line=line,
        created_at=created_at,
        loss_mask=(False, *[True] * (size - 1)),
        advantages=(advantage,) * size,
        w_opd=1.0,
        candidates=(Candidate(hint=HINT, num_shared=2, suffix_ids=(5, 6, 7)),),
    )


async def fill(data_dir: Path, *, model: str = "smollm2", token_ids: tuple[int, ...] | None = None) -> list[Turn]:
    """Turn 0 was corrected and made a sample, turn 1 was judged to no effect, and turn 2 waits for the judge."""
    turns = [replace(turn, model=model) for turn in make_conversation(4, words=3)]
    if token_ids is not None:
        completion = replace(
            turns[0].completion,
            token_ids=token_ids,
            logprobs=(-0.5,) * len(token_ids),
            version_spans=(replace(turns[0].completion.version_spans[0], end=len(token_ids)),),
        )
        first = replace(turns[0], completion=completion)
        ids = first.prompt_ids + first.completion.token_ids
        turns = [first, *(replace(turn, parent=None, prompt_ids=ids) for turn in turns[1:])]
    async with await SqliteStore.open(data_dir) as store:
        await store.put_session(make_session(last_seen_at=200.0))
        for turn in turns:
            await store.put_turn(turn)
        for index, message in enumerate((COMPLAINT, SAID, SAID)):
            await store.put_next_state(NextState(session=SESSION, index=index, messages=(message,), arrived_at=110.0))
        held = await store.lessons.lease("judge", limit=2, ttl_s=60)
        for lease, verdict in zip(sorted(held, key=lambda each: each.index), (CORRECTED, TIED), strict=True):
            judgement = Judgement(
                session=SESSION,
                index=lease.index,
                num_evidence=1,
                judge="rules",
                prompt_version="rules-1",
                judged_at=115.0 + lease.index,
                verdict=verdict,
            )
            await store.lessons.put_judgement(lease, judgement)
        for lease in await store.lessons.lease("credit", limit=2, ttl_s=60):
            credit = Credit(
                session=SESSION,
                index=lease.index,
                num_evidence=1,
                rule="combine",
                credited_at=121.0,
                skip=Skip.ABSTAINED,
            )
            if lease.index == 0:
                credit = replace(credit, skip=None, reward=-1.0, samples=(make_sample(turns[0]),))
            await store.lessons.put_credit(lease, credit)
        rest = await store.lessons.lease("judge", limit=9, ttl_s=1.0)
        for lease in rest:
            await store.lessons.give_back(lease, due_at=0.0)
    return turns
