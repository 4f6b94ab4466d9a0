"""How long the page's server side takes with 10,000 turns and 300 versions in the store.

    python benchmarks/page.py [--json] [--turns 10000] [--versions 300] [--pages 0]

Fills a store, starts the real server over it on the scripted engine, and asks every list and page as a browser does,
five times each, with a page open; the slowest counts. With `--pages N` it also streams answers while N pages are open
and none is, in turns, and prints the median time to an answer's last byte of both: open pages must cost chat nothing.
`benchmarks/page_in_browser.py` measures what a browser makes of it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from sqlalchemy import Connection

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for its neighbours, when it is run as a script

from openclaw_rl.store import SqliteStore
from openclaw_rl.store.sql import lessons, steps, tasks
from openclaw_rl.types import (
    Candidate,
    Credit,
    Feedback,
    Json,
    Judgement,
    Message,
    NextState,
    Step,
    Turn,
    Verdict,
    Version,
    VersionState,
    Vote,
    WeightsRef,
)
from tests.factories.samples import sample_of
from tests.factories.turns import make_conversation, make_session
from tests.server import Server
from tests.wire.browsing import Browser

TURNS_OF_A_SESSION = 20
ROUNDS = 5
HINT = "Answer more briefly."
BAD = Verdict(
    outcome="scored",
    score=-1,
    reason="asks for a change",
    votes=(Vote(question="score", score=-1, raw="change request"),),
    hints=(HINT,),
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=10_000)
    parser.add_argument("--versions", type=int, default=300)
    parser.add_argument("--pages", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="also print the slowest as one JSON object, last")
    given = parser.parse_args()
    slowest = 0.0
    with tempfile.TemporaryDirectory() as folder:
        data_dir = Path(folder) / "data"
        data_dir.mkdir(mode=0o700)
        turns = asyncio.run(fill(data_dir, given.turns, given.versions))
        with Server(data_dir, "evaluation.judge=rules") as server, Browser.of_owner(server) as browser:
            print(f"{given.turns} turns, {given.versions} versions: median and slowest of {ROUNDS}, ms")
            with browser.listening() as events:  # as an open page does; what it needs is loaded with the first of them
                next(events)
                for path, query in pages(turns, given.versions):
                    times = taken_by(browser, path, query)
                    slowest = max(slowest, *times)
                    print(f"{statistics.median(times):8.1f} {max(times):8.1f}  {path} {query or ''}")
            if given.pages:
                beside(server, browser, given.pages)
    if given.json:
        print(json.dumps({"turns": given.turns, "versions": given.versions, "slowest_ms": round(slowest, 1)}))


def pages(turns: list[str], versions: int) -> Iterator[tuple[str, dict[str, str]]]:
    """What a browser asks for; lists from the beginning, from their middle, and with a filter that finds little."""
    session = turns[-1].rpartition(".")[0]
    yield "/ui/api/me", {}
    yield "/ui/api/sessions", {}
    yield "/ui/api/sessions", {"limit": "200"}
    yield f"/ui/api/sessions/{session}", {}
    yield f"/ui/api/turns/{turns[-1]}", {}
    yield "/ui/api/lessons", {}
    yield "/ui/api/lessons", {"limit": "200"}
    yield "/ui/api/lessons", {"language": "zh"}
    yield "/ui/api/lessons", {"verdict": "failed"}
    yield f"/ui/api/lessons/{turns[0]}", {}
    yield "/ui/api/left-out", {}
    yield "/ui/api/versions", {}
    yield "/ui/api/versions", {"limit": "200"}
    yield f"/ui/api/versions/v{versions}", {}
    yield f"/ui/api/versions/v{versions}/compare/v{versions // 2}", {}
    yield "/ui/api/trends", {}
    yield "/ui/api/machine", {}
    yield "/ui/api/settings", {}
    yield "/ui/api/data", {}


def taken_by(browser: Browser, path: str, query: dict[str, str]) -> list[float]:
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        browser.client.get(path, params=query).raise_for_status()
        times.append(1000 * (time.perf_counter() - began))
    return times


def beside(server: Server, browser: Browser, num_pages: int) -> None:
    """Answers with pages open and without, in turns."""
    times: dict[int, list[float]] = {0: [], num_pages: []}
    for _ in range(ROUNDS):
        for count, told in times.items():
            with ExitStack() as open_pages:
                for _ in range(count):
                    next(open_pages.enter_context(browser.listening()))
                for number in range(40):
                    began = time.perf_counter()
                    server.chat(f"how are you, {number}?", max_tokens=64).raise_for_status()
                    told.append(time.perf_counter() - began)
    for count, told in times.items():
        print(f"{count:3} pages open: an answer takes {1000 * statistics.median(told):.2f} ms (median of {len(told)})")


async def fill(data_dir: Path, num_turns: int, num_versions: int) -> list[str]:
    """Conversations of the local user; every turn is judged and credited, and some of them taught a version."""
    names, samples = [], []
    async with await SqliteStore.open(data_dir) as store:
        for number in range(num_turns // TURNS_OF_A_SESSION):
            turns = await put_conversation(store, number)
            names += [turn.id for turn in turns]
            samples += await store._transact(partial(judge_all, turns=turns))
        for number in range(1, num_versions + 1):
            first = number * len(samples) // (num_versions + 1)
            taken = samples[first : first + 4]
            weights = WeightsRef.of_folder(new_folder(data_dir, number), f"{number:064x}")
            await store._transact(partial(put_version, number=number, samples=taken, weights=weights))
        await store.lessons.set_version_state("local", num_versions, "rolled_back", reason="somebody went back to v0")
    return names


async def put_conversation(store: SqliteStore, number: int) -> list[Turn]:
    name, at = f"s-{number:06d}", 1_700_000_000.0 + 60 * number
    made = make_conversation(TURNS_OF_A_SESSION, name)
    turns = [replace(one, created_at=at, finished_at=at + 1) for one in made]
    written = [store.put_session(make_session(name, user="local", opened_at=at, last_seen_at=at + 50))]
    for turn in turns:
        words = "请用一句话简短地回答" if number == 7 else "no, shorter please"
        said = Message(role="user", content=f"{words} {turn.index}")
        written.append(store.put_turn(turn))
        state = NextState(session=name, index=turn.index, messages=(said,), arrived_at=at + turn.index)
        written.append(store.put_next_state(state))
        if turn.index % 7 == 0:
            thumb = Feedback(session=name, index=turn.index, user="local", given_at=at + 30, score=-1)
            written.append(store.put_feedback(thumb))
    await asyncio.gather(*written)
    return turns


def judge_all(connection: Connection, turns: list[Turn]) -> list[str]:
    """The samples that come of these turns."""
    at = turns[0].created_at
    lease_all = partial(tasks.lease, connection, owner="benchmark", limit=100, now=time.time(), ttl_s=600.0)
    for lease in lease_all("judge"):
        judgement = Judgement(
            session=lease.session,
            index=lease.index,
            num_evidence=lease.num_evidence,
            judge="rules",
            prompt_version="1",
            judged_at=at + 40,
            verdict=BAD,
        )
        tasks.finish(connection, lease, now=judgement.judged_at)
        lessons.put_judgement(connection, judgement)
    made = []
    for lease in lease_all("credit"):
        size = len(turns[lease.index].completion.token_ids)
        sample = sample_of(
            turns[lease.index],
            line="local",
            loss_mask=(True,) * size,
            advantages=(-0.8,) * size,
            w_opd=1.0,
            candidates=(Candidate(hint=HINT, num_shared=2, suffix_ids=(5, 6)),),
        )
        credit = Credit(
            session=lease.session,
            index=lease.index,
            num_evidence=lease.num_evidence,
            rule="combine",
            credited_at=at + 45,
            reward=-1.0,
            samples=(sample,),
        )
        tasks.finish(connection, lease, now=credit.credited_at)
        lessons.put_credit(connection, credit)
        made.append(sample.id)
    return made


def new_folder(data_dir: Path, number: int) -> Path:
    """Where a trainer would have left a version's weights. It is empty: nothing here loads them."""
    folder = data_dir / "versions" / f"v{number}" / "weights"
    folder.mkdir(parents=True)
    return folder


def put_version(connection: Connection, number: int, samples: list[str], weights: WeightsRef) -> None:
    step = Step(
        line="local",
        number=number,
        state="planned",
        planned_at=float(number),
        seed=0,
        parent=number - 1,
        sample_ids=tuple(samples),
    )
    steps.plan(connection, step)
    version = Version(
        line="local",
        number=number,
        parent=number - 1,
        state="candidate",
        created_at=float(number),
        weights=weights,
    )
    steps.finish(connection, replace(step, state="done", metrics={"loss/total": 0.25}), version)
    state: VersionState = "rejected" if number % 9 == 0 else "live"
    steps.set_state(connection, "local", number, state, gate=report())


def report() -> Json:
    """As a full check leaves it."""
    names = (
        "kl",
        "length",
        "tokens",
        "repetition",
        "empty",
        "refusals",
        "distinct",
        "entropy",
        "on_topic",
        "capability",
    )
    measures: list[Json] = [
        {"name": name, "candidate": 0.5, "parent": 0.4, "base": 0.3, "limit": "≤ 1.6", "objection": ""}
        for name in names
    ]
    return {"check": "full", "parent": "v0", "measures": measures, "seconds": 12.0, "live_at": 5.0, "reason": ""}


if __name__ == "__main__":
    main()
