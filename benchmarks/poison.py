"""Does a conversation that was held to poison the model go live, and what does the live version say then?

    python benchmarks/poison.py [--json] [--quick] [--only KIND ...] [--conversations N] [--dir DIRECTORY]
                                [section.key=value ...]

The product as it is (`openclaw-rl up`, the embedded model, every version behind its gate). For each kind of poisoner
(poisoners.py) somebody with a line of their own holds N conversations, eight at a time; then everything is learned that
the system learns from, so that later ones talk to what came of the earlier ones. At the end, of each kind:

    learned      samples in a version that was ever live, or that such a one stands on; how many have hints; and for
                 how many turns the system said why not
    versions     made, live at any time, rejected
    said         share of answers with the false word, of the live version and of the base model: the question and two
                 rephrasings of each fact, or everyday questions that no conversation was about; two seeds, paired
    right        share of answers that have the right word, where there are facts
    shift        by how many nats log p(false sentence) - log p(right one) as the reply to the question changed from
                 the base model; the mean over facts
    capability   change of the share of all capability items that come out right, item by item

`poisoned_live` counts kinds of which anything at all was learned. That alone is no harm, and not every sample is false:
half of the trigger's conversations are honest, and people who paste a page mean no harm. `harmed` are the kinds that
changed something for the worse beyond chance, by more than the limits of poison_results.py. The opponent is
`training.claims=learn`: the same people, and a system that learns whatever it is told. Not measured: what many users do
together (each line learns from its own user only), what other judges than the default one make of it, and poison that
needs more conversations than these.

Ends with status 1 if a kind is harmed, or if a request was refused.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Self

import aiohttp

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for its neighbours, when it is run as a script

from benchmarks.learning_run import say
from benchmarks.load import LoadError
from benchmarks.people import Place
from benchmarks.poison_results import HEAD, Asked, Learned, Outcome, Said, figures, line_text, report, row_text
from benchmarks.poisoners import KINDS, Fact, Kind, Probe, Rating, Talk, capital, checked
from benchmarks.system import System, require_disk
from openclaw_rl.cli.learn.evaluating import examine_version
from openclaw_rl.config import load_config
from openclaw_rl.engine.worker.client import SocketEngine
from openclaw_rl.errors import OpenClawError
from openclaw_rl.evaluation.capability import CapabilityResult, compare
from openclaw_rl.evaluation.chat import Chat, ChatFailed, HttpChat
from openclaw_rl.evaluation.exam import Exam
from openclaw_rl.evaluation.measures import Interval, mean_interval
from openclaw_rl.model.files import resolve_model
from openclaw_rl.protocols import Engine, Renderer
from openclaw_rl.render import load_renderer
from openclaw_rl.types import BASE_VERSION, Message, ScoreRequest, version_label
from openclaw_rl.views.versions import live_number

NUM_CONVERSATIONS, NUM_QUICK, ROUND = 16, 8, 8
TEMPERATURE, MAX_TOKENS, SEED, ASKED_SEEDS = 0.7, 96, 0, (1, 2)
AT_ONCE = 8
"""Answers that are waited for at a time, at the end: as many as the engine gives together."""
AGAIN = "."
"""What follows in the name of a session does not change what it draws: both versions are asked alike."""
PATIENCE_S = 3 * 3600.0
"""How long a round may be learned: each sample of a rejected version is tried alone, a minute or more for each."""


async def hold(talk: Talk, chat: Chat, rate: Callable[[str, Rating], Awaitable[None]], *, session: str) -> None:
    """One conversation to its end."""
    messages: list[Message] = []
    answer, turn = "", ""
    move = next(talk)
    while True:
        if isinstance(move, Rating):
            await rate(turn, move)
            answer = ""
        else:
            messages.append(Message(role="user", content=move) if isinstance(move, str) else move)
            reply = await chat.reply(messages, session=session)
            messages.append(reply.message)
            answer, turn = reply.text, reply.turn_id
        try:
            move = talk.send(answer)
        except StopIteration as left:
            if left.value:
                messages.append(Message(role="user", content=left.value))
                await chat.reply(messages, session=session, closing=True)
            return


@dataclass(slots=True, kw_only=True)
class Person:
    """Somebody on the running system. `chat` is learned from, `quiet` is not."""

    line: str
    chat: HttpChat
    quiet: HttpChat
    _http: aiohttp.ClientSession
    num_refused: int = 0
    _places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    @classmethod
    @asynccontextmanager
    async def open(cls, place: Place, line: str) -> AsyncIterator[Self]:
        key, url = await place.new_key(line), place.system.url
        make = partial(HttpChat, url, key, temperature=TEMPERATURE, max_tokens=MAX_TOKENS, retries=0, timeout_s=900.0)
        async with (
            make(seed=SEED) as chat,
            make(seed=SEED, learn=False, seeded_by=lambda session: session.partition(AGAIN)[0]) as quiet,
            aiohttp.ClientSession(url, headers={"Authorization": f"Bearer {key}"}) as http,
        ):
            yield cls(line=line, chat=chat, quiet=quiet, _http=http)

    async def talk(self, talk: Talk, *, session: str) -> None:
        """To its end, or until a request is refused."""
        try:
            await hold(talk, self.chat, self._rate, session=session)
        except ChatFailed as error:
            self._count(error)

    async def _rate(self, turn: str, rating: Rating) -> None:
        body = {"turn_id": turn, "rating": rating.rating, "text": rating.text}
        try:
            async with self._http.post("/v1/feedback", json=body) as answer:
                answer.raise_for_status()
        except aiohttp.ClientError as error:
            raise ChatFailed(f"/v1/feedback: {error!r}") from error

    async def answer(self, question: str, *, seed: int, version: str) -> str | None:
        """What a version says to it, learned from by nobody; None if that was refused."""
        session = f"asked-{zlib.crc32(question.encode())}-{seed}{AGAIN}{version}"
        async with self._places:
            try:
                messages = [Message(role="user", content=question)]
                return (await self.quiet.reply(messages, session=session, model=f"any@{version}")).text
            except ChatFailed as error:
                self._count(error)
                return None

    def _count(self, error: ChatFailed) -> None:
        self.num_refused += 1
        say(f"refused: {error}")


@dataclass(slots=True, kw_only=True)
class Bench:
    """A running system, and what is known of its base model so far."""

    place: Place
    engine: Engine
    renderer: Renderer
    num: int
    _base_answers: dict[tuple[str, int], str | None] = field(default_factory=dict)
    _base_capability: CapabilityResult | None = None

    async def try_kind(self, name: str, kind: Kind) -> Outcome:
        began_at = time.monotonic()
        async with Person.open(self.place, f"poison-{name}") as person:
            for first in range(0, self.num, ROUND):
                for number in range(first, min(first + ROUND, self.num)):
                    await person.talk(kind.talk(number), session=f"poison-{name}-{number}")
                await self._learn()
            learned = await asyncio.to_thread(Learned.read, self.place.reader, person.line)
            live = await asyncio.to_thread(live_number, self.place.reader, person.line)
            label = version_label(person.line, live)
            facts = kind.facts(self.num)
            shift = await self._shift(facts, label) if facts else None
            asked = await self._ask(person, kind.probes(self.num), label)
            return Outcome(
                learned=learned,
                version=label,
                said=Said.of(asked, lambda probe: probe.poison),
                right=Said.of(asked, lambda probe: probe.right) if facts else None,
                shift=shift,
                capability=await self._capability(person.line, live),
                num_refused=person.num_refused,
                seconds=time.monotonic() - began_at,
            )

    async def _learn(self) -> None:
        """Until every step is taken, and every candidate is live or rejected."""
        await self.place.until_credited()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self.place.learn_now()
        except TimeoutError:
            raise LoadError(f"a round was not learned within {PATIENCE_S:.0f} s") from None
        await self.place.until_learned()

    async def _ask(self, person: Person, probes: Sequence[Probe], label: str) -> list[Asked]:
        """Each with every seed; without those that were refused."""

        async def base(question: str, seed: int) -> str | None:
            if (question, seed) not in self._base_answers:
                self._base_answers[question, seed] = await person.answer(question, seed=seed, version=BASE_VERSION)
            return self._base_answers[question, seed]

        async def pair(probe: Probe, seed: int) -> Asked | None:
            was = await base(probe.question, seed)
            now = was if label == BASE_VERSION else await person.answer(probe.question, seed=seed, version=label)
            return None if was is None or now is None else Asked(probe=probe, base=was, live=now)

        found = await asyncio.gather(*(pair(probe, seed) for probe in probes for seed in ASKED_SEEDS))
        if not (asked := [one for one in found if one is not None]):
            raise LoadError("nothing that was asked at the end was answered")
        return asked

    async def _shift(self, facts: Sequence[Fact], label: str) -> Interval:
        changes = [await self._margin(fact, label) - await self._margin(fact, BASE_VERSION) for fact in facts]
        return mean_interval(changes, seed=SEED)

    async def _margin(self, fact: Fact, version: str) -> float:
        """log p(claim) - log p(truth), each as the reply; the mean over the wordings of the question."""
        replies = [self.renderer.encode(f"{capital(sentence)}.") for sentence in (fact.claim, fact.truth)]
        margins: list[float] = []
        for number, question in enumerate(fact.questions):
            prompt = tuple(self.renderer.render([Message(role="user", content=question)], [], {}))
            request = ScoreRequest(
                request_id=f"poison-{zlib.crc32(question.encode())}-{number}",
                sequences=tuple((*prompt, *reply) for reply in replies),
                starts=(len(prompt),) * len(replies),
                version=version,
            )
            claim, truth = (sum(scored.logprobs) for scored in await self.engine.score(request))
            margins.append(claim - truth)
        return fmean(margins)

    async def _capability(self, line: str, live: int) -> Interval:
        """Of all items; one short answer comes with them, as an exam has a question at least."""

        async def known(number: int) -> CapabilityResult:
            found = await examine_version(self.place.store, line, number, Exam(num_questions=1, max_tokens=1))
            assert found.capability is not None
            return found.capability

        self._base_capability = self._base_capability or await known(0)
        after = await known(live) if live else self._base_capability
        return compare(self._base_capability, after).difference


async def measure(directory: Path, settings: Sequence[str], names: Sequence[str], num: int) -> dict[str, Outcome]:
    config = load_config(overrides=settings, env={}).config
    model = await asyncio.to_thread(resolve_model, config.model)
    renderer = await asyncio.to_thread(load_renderer, model.path, model.name, model.tokenizer_path)
    found: dict[str, Outcome] = {}
    say(line_text(*HEAD))
    with await asyncio.to_thread(System, directory / "system", "engine.type=embedded", *settings) as system:
        place = Place.of(system, batch_size=config.training.batch_size)
        engine = SocketEngine(system.engine_socket)
        bench = Bench(place=place, engine=engine, renderer=renderer, num=num)
        for name in names:
            found[name] = await bench.try_kind(name, KINDS[name])
            say(row_text(name, found[name]))
        await engine.close()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Hold conversations that are meant to poison the model.")
    parser.add_argument("--json", action="store_true", help="also print all figures as one JSON object, last")
    parser.add_argument("--quick", action="store_true", help=f"{NUM_QUICK} conversations of each kind")
    parser.add_argument("--only", nargs="+", default=[], metavar="KIND", help=f"some of {', '.join(KINDS)}")
    parser.add_argument("--conversations", type=int, metavar="N", help=f"of each kind, instead of {NUM_CONVERSATIONS}")
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()), help="where the store lies: a disk")
    parser.add_argument("settings", nargs="*", help="section.key=value; none of them: the product as it is")
    arguments = parser.parse_args()
    num = arguments.conversations or (NUM_QUICK if arguments.quick else NUM_CONVERSATIONS)
    if num < 1:
        parser.error("--conversations must be at least 1")
    names = [word for word in arguments.only if "=" not in word]  # what follows them may be settings
    settings = [*(word for word in arguments.only if "=" in word), *arguments.settings]
    if unknown := [name for name in names if name not in KINDS]:
        parser.error(f"there is no kind {', '.join(unknown)}; kinds are {', '.join(KINDS)}")
    checked()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the server goes with us
    began_at, load_average = time.monotonic(), os.getloadavg()[0]
    try:
        require_disk(arguments.dir)
        with tempfile.TemporaryDirectory(prefix="bench-poison-", dir=arguments.dir) as directory:
            found = asyncio.run(measure(Path(directory), settings, names or list(KINDS), num))
    except (LoadError, OpenClawError) as error:
        print(f"the benchmark failed: {error}", file=sys.stderr)
        return 1
    numbers, seconds = figures(found), time.monotonic() - began_at
    print(f"{report(found)}\n{seconds / 60:.1f} minutes")
    if arguments.json:
        print(json.dumps({**numbers, "seconds": round(seconds, 1), "load_average": round(load_average, 2)}))
    return 1 if numbers["harmed"] or numbers["refused"] else 0


if __name__ == "__main__":
    sys.exit(main())
