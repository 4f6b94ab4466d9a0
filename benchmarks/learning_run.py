"""An arm and people -> their records: sessions, held-out questions now and then, capability at the end.

Starts the real system, and talks to it as anybody would; what it has learned is read from its store.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

from benchmarks.learning_arms import Arm
from benchmarks.learning_results import Person, Probe, Record, RecordFile, sessions_to_stable
from benchmarks.memory_chat import MemoryChat
from benchmarks.people import Place, lesson_questions
from benchmarks.system import System
from benchmarks.tuning_user import Compact
from benchmarks.wish_users import Examples, Lists
from openclaw_rl.cli.learn.evaluating import examine_version
from openclaw_rl.evaluation import detectors
from openclaw_rl.evaluation.chat import Chat, HttpChat
from openclaw_rl.evaluation.exam import Exam
from openclaw_rl.evaluation.questions import Question, load_questions
from openclaw_rl.evaluation.sessions import SessionRecord, run_session
from openclaw_rl.evaluation.users import SimulatedUser, load_user, questions_for
from openclaw_rl.judge.heads import RulesJudge
from openclaw_rl.types import Message, Version
from openclaw_rl.views.versions import live_number

MAX_TURNS, MAX_TOKENS, NUM_HELD_OUT = 3, 192, 12
TEMPERATURE = 0.7
"""Of every answer, as in the demo: at 1 a fifth of what the embedded model says is beside the question, whoever taught
it, and three good replies in a row are a matter of luck."""
AGAIN = "."
"""What follows in the name of a session does not change what it draws: so the same question is asked twice alike."""
OURS = {user.name: user for user in (Compact, Lists, Examples)}
"""People of the benchmarks' own, beside the shipped ones."""
AT_ONCE = 8
"""Held-out questions that are asked at a time: as many as the engine answers together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is asked for. `probe_every` sessions the held-out questions are asked again; 0: only at both ends."""

    people: tuple[Person, ...]
    cap: int
    probe_every: int = 4
    num_held_out: int = NUM_HELD_OUT
    """0: nothing but sessions is measured."""
    num_items: int | None = None
    num_lessons: int | None = None
    """After so many corrections a person asks no more, whether stable or not; None: until stable, or the cap."""
    settings: tuple[str, ...] = ()

    @property
    def measured(self) -> str:
        return f"{self.num_held_out} questions of {MAX_TOKENS}, {self.num_items or 'all'} items"

    def name(self, arm: Arm) -> str:
        """What a record must have in common with this plan to count for it."""
        parts = (
            f"cap {self.cap}",
            f"probed {self.probe_every}",
            f"{MAX_TURNS} turns of {MAX_TOKENS} at {TEMPERATURE}",
            self.measured,
            *(() if self.num_lessons is None else (f"{self.num_lessons} lessons",)),
        )
        return ", ".join((*parts, *self.settings, *arm.settings))

    def by_user(self) -> list[Plan]:
        """The same for the people of one simulated user after the other."""
        users = dict.fromkeys(user for user, _ in self.people)
        return [replace(self, people=tuple(one for one in self.people if one[0] == user)) for user in users]

    def num_seeds(self, user: str) -> int:
        return sum(name == user for name, _ in self.people)


def questions_of(user: SimulatedUser, seed: int, num_seeds: int) -> Iterator[Question]:
    """In an order of the user's, from another place for each seed, so that no two ask the same as long as they last.

    Each hundred of seeds has an order of its own: those of tuning are another one.
    """
    asked = list(lesson_questions(user))
    random.Random(f"questions of {user.name}, {seed // 100}").shuffle(asked)
    at = (seed - 1) % num_seeds * len(asked) // num_seeds
    while True:
        yield asked[at % len(asked)]
        at += 1


@dataclass(slots=True, kw_only=True)
class Talker:
    """One person in one arm. `chat` is learned from, `quiet` is not. `probes` begins with the base model."""

    user: SimulatedUser
    seed: int
    chat: Chat
    quiet: Chat
    questions: Iterator[Question]
    probes: list[Probe]
    ceiling: Probe | None = None
    records: list[SessionRecord] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def line(self) -> str:
        return f"{self.user.name}-{self.seed}"

    @property
    def first_ok(self) -> list[bool]:
        return [record.first_reply_ok for record in self.records]

    @property
    def is_stable(self) -> bool:
        return sessions_to_stable(self.first_ok) is not None

    @property
    def num_lessons(self) -> int:
        """Reactions that said what was wanted."""
        return sum(not one.reaction.is_content for record in self.records for one in record.exchanges)

    @property
    def is_probed(self) -> bool:
        return bool(self.probes) and self.probes[-1].session == len(self.records)

    async def talk(self) -> None:
        name = f"{self.line}-{len(self.records) + 1}"
        question = next(self.questions)
        self.records.append(await run_session(self.chat, self.user, question, session=name, max_turns=MAX_TURNS))

    async def probe(self, places: asyncio.Semaphore, num: int) -> None:
        """The held-out questions as they are answered now; before the first lesson also with the wish behind them."""
        self.probes.append(await self._probed(places, num))

    async def probe_ceiling(self, places: asyncio.Semaphore, num: int) -> None:
        """What the base model makes of the wish itself: as much as lessons can be hoped to teach."""
        self.ceiling = await self._probed(places, num, wish=wish_of(self.user))

    async def _probed(self, places: asyncio.Semaphore, num: int, *, wish: str = "") -> Probe:
        """Each question in a session of its own."""
        at = len(self.records)

        async def ask(index: int, question: Question) -> tuple[float, float, float]:
            async with places:
                text = f"{question.text}\n\n{wish}" if wish else question.text
                name = f"{self.line}-held-{index}{AGAIN}{'wish' if wish else at}"
                reply = await self.quiet.reply([Message(role="user", content=text)], session=name)
            score = self.user.score(question, reply.text)
            return score, detectors.on_topic(question.text, reply.text), float(reply.num_tokens or 0)

        asked = questions_for(self.user, load_questions("held_out"))[:num]
        found = await asyncio.gather(*(ask(index, question) for index, question in enumerate(asked)))
        scores, topics, tokens = zip(*found, strict=True)
        return Probe(session=at, preference=fmean(scores), on_topic=fmean(topics), tokens=fmean(tokens))


@dataclass(slots=True, kw_only=True)
class ArmRun:
    """One arm with the people that are not finished in it. `base_right` is empty until somebody asked."""

    arm: Arm
    plan: Plan
    place: Place
    talkers: Sequence[Talker]
    base_right: str
    _places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    _began_at: float = field(default_factory=time.monotonic)

    def _goes_on(self, talker: Talker) -> bool:
        if self.plan.num_lessons is not None:
            return talker.num_lessons < self.plan.num_lessons
        return not talker.is_stable

    async def run(self) -> list[Record]:
        await self._probe(self.talkers)
        if self.plan.num_lessons is not None:
            num = self.plan.num_held_out
            await asyncio.gather(*(talker.probe_ceiling(self._places, num) for talker in self.talkers))
        for session in range(1, self.plan.cap + 1):
            active = [talker for talker in self.talkers if self._goes_on(talker)]
            if not active:
                break
            await asyncio.gather(*(talker.talk() for talker in active))
            await self._learn()
            for talker in active:
                talker.seconds = time.monotonic() - self._began_at
            if self.plan.probe_every and session % self.plan.probe_every == 0:
                await self._probe(active)
            self._tell(session)
        await self._probe(self.talkers)
        return [await self._record(talker) for talker in self.talkers]

    async def _learn(self) -> None:
        """Until what was said is learned: the person comes back later."""
        if not self.arm.learns:
            return
        if self.arm.at_once:
            await self.place.until_credited()
            await self.place.learn_now()
        await self.place.until_learned()

    async def _probe(self, talkers: Sequence[Talker]) -> None:
        if num := self.plan.num_held_out:
            await asyncio.gather(*(talker.probe(self._places, num) for talker in talkers if not talker.is_probed))

    def _tell(self, session: int) -> None:
        left = sum(map(self._goes_on, self.talkers))
        spent = time.monotonic() - self._began_at
        most = (self.plan.cap - session) * spent / session if left else 0.0
        scores = " ".join(f"{talker.records[-1].first_score:.2f}" for talker in self.talkers)
        say(
            f"  {self.arm.name}: session {session} of at most {self.plan.cap}; first replies {scores}; "
            f"{left} not done yet; {spent / 60:.1f} min, at most {most / 60:.0f} more"
        )

    async def _record(self, talker: Talker) -> Record:
        reader, line = self.place.reader, talker.line
        versions = await asyncio.to_thread(reader.versions, line)
        steps = await asyncio.to_thread(reader.steps, line)
        for reason, times in Counter(one.reason for one in versions if one.state == "rejected").most_common():
            say(f"  {line}: {times} rejected: {reason}")
        right, number = "", 0
        if self.plan.num_held_out:
            self.base_right = self.base_right or await self._right(line, 0)
            number = await asyncio.to_thread(live_number, reader, line)
            right = await self._right(line, number) if number else self.base_right
        return Record(
            arm=self.arm.name,
            user=talker.user.name,
            seed=talker.seed,
            plan=self.plan.name(self.arm),
            measured=self.plan.measured,
            cap=self.plan.cap,
            first_ok=tuple(talker.first_ok),
            first_scores=tuple(record.first_score for record in talker.records),
            probes=tuple(talker.probes),
            ceiling=talker.ceiling,
            num_lessons=talker.num_lessons,
            right=right,
            base_right=self.base_right,
            known=known_by_version(versions) or _ends(self.base_right, number, right),
            num_steps=sum(step.state == "done" for step in steps),
            num_rejected=sum(version.state == "rejected" for version in versions),
            seconds=talker.seconds,
        )

    async def _right(self, line: str, number: int) -> str:
        """Item by item; one short answer comes with it, as an exam has a question at least."""
        exam = Exam(num_questions=1, max_tokens=1, num_items=self.plan.num_items)
        found = await examine_version(self.place.store, line, number, exam)
        assert found.capability is not None
        return "".join(str(int(right)) for right in found.capability.right)


def wish_of(user: SimulatedUser) -> str:
    """What the user wants, in one sentence of their own."""
    wish: str = getattr(user, "wish", "") or getattr(user, "complaints", ("",))[0]
    return wish or user.preference


def known_by_version(versions: Sequence[Version]) -> tuple[tuple[int, float], ...]:
    """What the gate found, as far as it asked; the base model's is in every report."""
    found: dict[int, float] = {}
    for version in versions:
        report = version.gate if isinstance(version.gate, dict) else {}
        for measure in report.get("measures", ()):
            if measure["name"] == "capability":
                found[version.number] = measure["candidate"]
                found[0] = measure["base"]
    return tuple(sorted(found.items()))


def _ends(base_right: str, number: int, right: str) -> tuple[tuple[int, float], ...]:
    """The base model and the last version, where the gate asked nothing."""
    return tuple((at, one.count("1") / len(one)) for at, one in ((0, base_right), (number, right)) if one and number)


async def run_arm(arm: Arm, plan: Plan, file: RecordFile, directory: Path) -> list[Record]:
    """What is finished, and the rest of it now."""
    known = file.read()
    finished = file.of(arm.name, plan.name(arm))
    missing = [person for person in plan.people if person not in finished]
    if missing:
        say(f"{arm.label}: {', '.join(f'{user}-{seed}' for user, seed in missing)}")
        same = [record for record in known if record.measured == plan.measured and record.probes]
        base = {record.person: record.probes[0] for record in same}
        base_right = next((record.base_right for record in same if record.base_right), "")
        folder = directory / f"{arm.name}-{os.getpid()}-{time.monotonic_ns()}"
        settings = ("engine.type=embedded", *plan.settings, *arm.settings)
        with await asyncio.to_thread(System, folder, *settings, command=arm.command) as system:
            place = Place.of(system, batch_size=arm.batch_size)
            async with AsyncExitStack() as chats:
                talkers = [await _talker(arm, plan, place, person, base.get(person), chats) for person in missing]
                run = ArmRun(arm=arm, plan=plan, place=place, talkers=talkers, base_right=base_right)
                file.add(await run.run())
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        finished = file.of(arm.name, plan.name(arm))
    return [finished[person] for person in plan.people]


async def _talker(
    arm: Arm, plan: Plan, place: Place, person: Person, base: Probe | None, chats: AsyncExitStack
) -> Talker:
    name, seed = person
    user = OURS[name](seed=seed) if name in OURS else load_user(name, seed=seed)
    key = await place.new_key(f"{name}-{seed}")

    async def chat(*, learn: bool) -> HttpChat:
        made = HttpChat(
            place.system.url,
            key,
            learn=learn,
            temperature=TEMPERATURE,
            max_tokens=MAX_TOKENS,
            seed=seed,
            seeded_by=lambda session: session.partition(AGAIN)[0],
            timeout_s=900.0,  # on two cores an answer may stand behind a training step
        )
        return await chats.enter_async_context(made)

    quiet: Chat = await chat(learn=False)
    if arm.has_memory:
        quiet = MemoryChat(quiet, RulesJudge())
    return Talker(
        user=user,
        seed=seed,
        chat=await chat(learn=True) if arm.learns else quiet,
        quiet=quiet,
        questions=questions_of(user, seed, plan.num_seeds(name)),
        probes=[base] if base else [],
    )


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
