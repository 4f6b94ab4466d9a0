"""From a correction to weights that learned from it, and what somebody else's running answer notices of that.

    python benchmarks/latency.py [--json] [--quick] [--head TOKENS] [--dir DIRECTORY] [section.key=value ...]

The product as it is, on the embedded model; with `model.name=FOLDER` on another (random_model.py makes a large one);
with `--head` behind a system prompt of about so many tokens. One user streams answers without a pause all the time and
is not learned from. Another gets an answer, and says what was wrong with it. The clock runs from the moment this
correction is sent to the first token of an answer by a version that learned from that turn: the label in the answer's
header must be that of the step which has the turn among its samples, or of one that stands on it. Where the time went
is read from the rows:

    judge    the correction arrived -> a judgement      step    planned -> the trainer is done
    credit   -> a sample                                gate    -> live: loaded, compared with its parent, proved
    wait     -> a step is planned (`pause_s`)           live    -> the first token of the next answer

A correction whose version the gate rejects is counted, and another one is sent. Gaps are those between two pieces of
text of one answer. Ends with status 1 if a request was refused or cut off.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import aiohttp
import orjson

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for its neighbours, when it is run as a script

from benchmarks.load import LoadError
from benchmarks.people import Place, lesson_questions
from benchmarks.system import System, require_disk
from openclaw_rl.config import load_config
from openclaw_rl.errors import OpenClawError
from openclaw_rl.evaluation.questions import Question
from openclaw_rl.evaluation.users import Brief
from openclaw_rl.types import Step, Version, split_turn_id, version_number

PARTS = ("judge", "credit", "wait", "step", "gate", "live")
CORRECTION = "Too long. Answer in one short sentence."
ANSWER_TOKENS, STREAM_TOKENS = 256, 256
LOOK_S, PATIENCE_S = 0.1, 1200.0
WORDS = ("the", "of", "and", "to", "in", "is", "that", "it", "was", "for", "on", "are", "as", "with", "they", "be")
REST_S = 15.0
"""How long nothing is said before and after, to see how the stream runs alone."""

FIGURES = {
    "feedback_to_weights_s": ("correction sent -> first token by weights that learned from it, median, s", ""),
    "feedback_to_weights_max_s": ("  the longest, s", ""),
    **{f"{part}_s": (f"  of which {part}, median, s", "") for part in PARTS},
    "tokens_per_s_before": ("somebody else's stream while nothing is learned, tokens/s", ""),
    "tokens_per_s_while": ("  between correction and new weights, tokens/s", ""),
    "tokens_per_s_step": ("  during the step, tokens/s", ""),
    "tokens_per_s_gate": ("  during the gate, tokens/s", ""),
    "tokens_per_s_after": ("  afterwards, tokens/s", ""),
    "longest_gap_before_ms": ("longest gap of that stream while nothing is learned, ms", ""),
    "longest_gap_ms": ("  between correction and new weights, ms", ""),
    "longest_gap_step_ms": ("  during the step, ms", ""),
    "longest_gap_gate_ms": ("  during the gate, ms", ""),
    "longest_gap_after_ms": ("  afterwards, ms", ""),
    "repetitions": ("corrections that were learned from", ""),
    "rejected": ("corrections whose version the gate rejected", ""),
    "answers": ("answers of that stream", ""),
    "refused": ("requests refused or cut off", "0"),
    "load_average": ("load average of this machine before the run", ""),
    "seconds": ("length of the run, s", ""),
}
"""Every figure, what it is called in the table, and the bar it has to pass where there is one."""

Window = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """When each piece of its text came, by the wall clock, as rows have it."""

    version: str
    turn: str
    text: str
    times: Sequence[float]
    num_tokens: int
    is_cut: bool


class Client:
    """Streams answers; counts those that are refused or cut off."""

    def __init__(self, place: Place, key: str, http: aiohttp.ClientSession, *, head: str) -> None:
        self._url = f"{place.system.url}/v1/chat/completions"
        self._head = [{"role": "system", "content": head}] if head else []
        self._headers = {"Authorization": f"Bearer {key}"}
        self._http = http
        self.num_refused = 0

    async def ask(self, *said: str, session: str, max_tokens: int, learn: bool = True, seed: int = 0) -> Answer | None:
        """`said` are user and assistant in turns. None if it was refused or cut off."""
        headers = {**self._headers, "X-Session-Id": session, **({} if learn else {"X-No-Train": "session"})}
        body = {
            "model": "default",
            "messages": self._head
            + [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(said)],
            "max_tokens": max_tokens,
            "seed": seed,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        try:
            async with self._http.post(self._url, data=orjson.dumps(body), headers=headers) as reply:
                reply.raise_for_status()
                return await _read(reply)
        except (aiohttp.ClientError, TimeoutError) as error:
            self.num_refused += 1
            print(f"refused: {error!r}", file=sys.stderr)
            await asyncio.sleep(0.5)
            return None


async def _read(reply: aiohttp.ClientResponse) -> Answer:
    pieces: list[tuple[float, str]] = []
    num_tokens, is_cut = None, False
    async for line in reply.content:
        if not line.startswith(b"data: {"):
            continue
        event: Any = orjson.loads(line.removeprefix(b"data: "))
        now = time.time()
        pieces += [(now, choice["delta"]["content"]) for choice in event["choices"] if choice["delta"].get("content")]
        is_cut = is_cut or any(choice.get("finish_reason") == "length" for choice in event["choices"])
        if event.get("usage"):
            num_tokens = event["usage"]["completion_tokens"]
    if num_tokens is None:
        raise aiohttp.ClientPayloadError("the answer has no end")
    return Answer(
        version=reply.headers["X-OpenClaw-RL-Version"],
        turn=reply.headers["X-OpenClaw-RL-Turn"],
        text="".join(text for _, text in pieces),
        times=[at for at, _ in pieces],
        num_tokens=num_tokens,
        is_cut=is_cut,
    )


class Stream:
    """One answer after the other, until it is cancelled."""

    def __init__(self, client: Client, questions: Sequence[Question]) -> None:
        self._client = client
        self._questions = questions
        self.answers: list[Answer] = []

    async def run(self) -> None:
        for number in count():
            question = self._questions[number % len(self._questions)].text
            answer = await self._client.ask(
                question, session=f"stream-{number}", max_tokens=STREAM_TOKENS, learn=False, seed=number
            )
            if answer is not None:
                self.answers.append(answer)

    def tokens_per_s(self, windows: Sequence[Window]) -> float:
        """A piece of text stands for as many tokens as those of its answer do on average."""
        num = 0.0
        for answer in self.answers:
            num += sum(within(at, windows) for at in answer.times) * answer.num_tokens / max(1, len(answer.times))
        return num / sum(end - begin for begin, end in windows)

    def longest_gap_ms(self, windows: Sequence[Window]) -> float:
        """Of those that end in a window."""
        gaps = [0.0]
        for answer in self.answers:
            gaps += [b - a for a, b in zip(answer.times, answer.times[1:], strict=False) if within(b, windows)]
        return 1000 * max(gaps)


def within(at: float, windows: Sequence[Window]) -> bool:
    return any(begin <= at < end for begin, end in windows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """One correction: when it was sent, and when each part of what became of it was over."""

    sent_at: float
    ends: Sequence[float]
    """Those of `PARTS`, in their order."""

    @property
    def seconds(self) -> float:
        return self.ends[-1] - self.sent_at

    def __str__(self) -> str:
        parts = (f"{name} {end - begin:.1f}" for name in PARTS for begin, end in (self.part(name),))
        return f"{self.seconds:.1f} s ({', '.join(parts)})"

    def part(self, name: str) -> Window:
        at = PARTS.index(name)
        return (self.ends[at - 1] if at else self.sent_at), self.ends[at]


class Person:
    """Gets an answer, corrects it, and asks again when a version that learned from it is live."""

    def __init__(self, place: Place, client: Client, line: str, questions: Sequence[Question]) -> None:
        self._place = place
        self._client = client
        self._line = line
        self._questions = questions
        self._numbers = count()

    async def correct(self) -> Learned | None:
        """None if the gate rejected the version."""
        question, session, first = await self._whole_answer()
        sent_at = time.time()
        # Not waited for: the answer to the correction is the next turn, and the clock is that of this one.
        said = (question, first.text, CORRECTION)
        answering = asyncio.create_task(self._client.ask(*said, session=session, max_tokens=ANSWER_TOKENS))
        try:
            step = await self._live_step(*split_turn_id(first.turn))
            if step is None:
                return None
            after = await self._client.ask(question, session=f"{session}-after", max_tokens=8, learn=False)
        finally:
            await answering
        versions = {one.number: one for one in await asyncio.to_thread(self._place.reader.versions, self._line)}
        if after is None or not after.times:
            raise LoadError(f"step {step.number} is live, and says nothing")
        if not stands_on(versions, version_number(after.version), step.number):
            raise LoadError(f"step {step.number} is live, and {after.version} answers")
        return await asyncio.to_thread(self._parts, sent_at, split_turn_id(first.turn), step, versions, after)

    async def _whole_answer(self) -> tuple[str, str, Answer]:
        """A question, its session and the answer. One that was cut is not learned from, so another is asked for."""
        for number in self._numbers:
            question, session = self._questions[number % len(self._questions)].text, f"person-{number}"
            answer = await self._client.ask(question, session=session, max_tokens=ANSWER_TOKENS, seed=number)
            if answer is not None and not answer.is_cut:
                return question, session, answer
        raise AssertionError

    async def _live_step(self, session: str, index: int) -> Step | None:
        """The step that has the turn among its samples, once its version, or one that stands on it, is live."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            await asyncio.sleep(LOOK_S)
            found = await asyncio.to_thread(self._look, session, index)
            if found is not None:
                step, versions = found
                if versions[step.number].state in ("rejected", "no_effect"):
                    return None
                if any(
                    one.state == "live" and stands_on(versions, one.number, step.number) for one in versions.values()
                ):
                    return step
        raise LoadError(f"a correction was not learned from within {PATIENCE_S:.0f} s")

    def _look(self, session: str, index: int) -> tuple[Step, dict[int, Version]] | None:
        reader = self._place.reader
        versions = {one.number: one for one in reader.versions(self._line)}
        made = [sample.id for credit in reader.credits(session) if credit.index == index for sample in credit.samples]
        for step in reader.steps(self._line):
            if step.number in versions and set(made) & set(step.sample_ids):
                return step, versions
        return None

    def _parts(
        self, sent_at: float, turn: tuple[str, int], step: Step, versions: Mapping[int, Version], after: Answer
    ) -> Learned:
        reader, (session, index) = self._place.reader, turn
        (judged,) = (one.judged_at for one in reader.judgements(session) if one.index == index)
        (credited,) = (one.credited_at for one in reader.credits(session) if one.index == index)
        report = versions[step.number].gate
        assert isinstance(report, dict)
        assert step.finished_at is not None
        ends = (judged, credited, step.planned_at, step.finished_at, report["live_at"], after.times[0])
        return Learned(sent_at=sent_at, ends=ends)


def stands_on(versions: Mapping[int, Version], number: int, ground: int) -> bool:
    """Whether a version is this one, or was made from it."""
    while number in versions and number != ground:
        number = versions[number].parent
    return number == ground


@dataclass(slots=True)
class Run:
    """What was seen, and when nothing was said."""

    learned: list[Learned] = field(default_factory=list)
    rests: list[Window] = field(default_factory=list)
    num_rejected: int = 0


async def rest(seconds: float) -> Window:
    begin = time.time()
    await asyncio.sleep(seconds)
    return begin, time.time()


async def talk(place: Place, person: Person, *, repetitions: int) -> Run:
    """Rests, corrections, rests. A rest begins when nothing is left to learn from what was said before."""
    run = Run()
    run.rests.append(await rest(REST_S))
    while True:
        if (found := await person.correct()) is None:
            run.num_rejected += 1
        else:
            run.learned.append(found)
            print(f"  {len(run.learned)} of {repetitions}: {found}", file=sys.stderr, flush=True)
        await place.until_learned()
        run.rests.append(await rest(REST_S))
        if len(run.learned) == repetitions:
            return run
        if run.num_rejected > repetitions:
            raise LoadError(f"the gate rejected {run.num_rejected} versions; nothing can be said of the others")


def system_prompt(num_tokens: int) -> str:
    """Of words that are a token each."""
    return " ".join(Random(0).choices(WORDS, k=num_tokens))


async def measure(directory: Path, settings: Sequence[str], *, repetitions: int, num_head: int = 0) -> dict[str, float]:
    began_at, load_average = time.monotonic(), os.getloadavg()[0]
    questions = lesson_questions(Brief())
    half = len(questions) // 2
    batch_size = load_config(overrides=settings, env={}).config.training.batch_size
    with await asyncio.to_thread(System, directory / "system", "engine.type=embedded", *settings) as system:
        place = Place.of(system, batch_size=batch_size)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=600.0)) as http:
            head = system_prompt(num_head)
            clients = {name: Client(place, await place.new_key(name), http, head=head) for name in ("reader", "person")}
            stream = Stream(clients["reader"], questions[half:])
            person = Person(place, clients["person"], "person", questions[:half])
            streaming = asyncio.create_task(stream.run())
            try:
                run = await talk(place, person, repetitions=repetitions)
            finally:
                streaming.cancel()
                await asyncio.wait((streaming,))
    found = figures(run, stream)
    found["refused"] = sum(client.num_refused for client in clients.values())
    return found | {"load_average": load_average, "seconds": time.monotonic() - began_at}


def figures(run: Run, stream: Stream) -> dict[str, float]:
    """Medians over the corrections; of the stream all windows together."""
    took = [one.seconds for one in run.learned]
    found: dict[str, float] = {"feedback_to_weights_s": median(took), "feedback_to_weights_max_s": max(took)}
    for part in PARTS:
        found[f"{part}_s"] = median(end - begin for begin, end in (one.part(part) for one in run.learned))
    windows = {
        "before": run.rests[:1],
        "while": [(one.sent_at, one.ends[-1]) for one in run.learned],
        "step": [one.part("step") for one in run.learned],
        "gate": [one.part("gate") for one in run.learned],
        "after": run.rests[1:],
    }
    for name, those in windows.items():
        found[f"tokens_per_s_{name}"] = stream.tokens_per_s(those)
        found["longest_gap_ms" if name == "while" else f"longest_gap_{name}_ms"] = stream.longest_gap_ms(those)
    return found | {
        "repetitions": len(run.learned),
        "rejected": run.num_rejected,
        "answers": len(stream.answers),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure how soon a correction is in the weights that answer.")
    parser.add_argument("--json", action="store_true", help="also print all figures as one JSON object, last")
    parser.add_argument("--quick", action="store_true", help="two corrections instead of five")
    parser.add_argument("--head", type=int, default=0, help="tokens of a system prompt before all that is said")
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()), help="where the store lies: a disk")
    parser.add_argument("settings", nargs="*", help="section.key=value; none of them: the product as it is")
    arguments = parser.parse_args()
    try:
        require_disk(arguments.dir)
        with tempfile.TemporaryDirectory(prefix="bench-latency-", dir=arguments.dir) as directory:
            repetitions = 2 if arguments.quick else 5
            found = asyncio.run(
                measure(Path(directory), arguments.settings, repetitions=repetitions, num_head=arguments.head)
            )
    except (LoadError, OpenClawError) as error:
        print(f"the benchmark failed: {error}", file=sys.stderr)
        return 1
    for name, (label, bar) in FIGURES.items():
        print(f"{name:26} {found[name]:>10,.2f}  {label}{f'  ({bar})' if bar else ''}")
    if arguments.json:
        print(json.dumps({name: round(value, 3) for name, value in found.items()}))
    return 1 if found["refused"] else 0


if __name__ == "__main__":
    sys.exit(main())
