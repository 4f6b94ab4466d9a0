"""`openclaw-rl demo`: a simulated user with a hidden preference talks to the model, and one sees it learn.

    question -> answer -> reaction, a session each      through the gateway, as anybody's
    verdicts, hints, steps, versions                    read from the store
    held-out questions, capability                      every version that goes live, asked by the server itself

Nothing is prepared: what is shown is what the model says. The next questions are asked while the trainer works, but no
more than a batch ahead of it: people go before the gate, so who never pauses never sees the next version. Ctrl-C shows
what there is so far; what was learned stays.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from openclaw_rl.cli.admin import AdminRefused
from openclaw_rl.cli.demo.events import DemoAnswered, DemoAsked, Doing, Measured, Point, Reacted, Watcher
from openclaw_rl.cli.demo.result import DemoResult, print_result, result_json
from openclaw_rl.cli.demo.server import DemoServer, demo_server
from openclaw_rl.cli.demo.view import Board, Tell, showing
from openclaw_rl.cli.learn.evaluating import exam_for, examine_version
from openclaw_rl.cli.learn.plot import PlotFailed, check_plot, plot_curve, show_with_plot
from openclaw_rl.cli.screen import complain, make_console, print_json
from openclaw_rl.config import LoadedConfig
from openclaw_rl.errors import ConfigError
from openclaw_rl.evaluation.chat import Chat, HttpChat, Reply
from openclaw_rl.evaluation.comparing import mean_tokens, preference
from openclaw_rl.evaluation.exam import SMALL_NUM_ITEMS, Exam, Examination, traits
from openclaw_rl.evaluation.questions import KINDS, Question, load_questions
from openclaw_rl.evaluation.sessions import SessionRecord, run_session
from openclaw_rl.evaluation.users import Reaction, SimulatedUser, questions_for, score_of
from openclaw_rl.types import Message, Tool, split_turn_id, version_label
from openclaw_rl.views.rows import open_rows

DEFAULT_TURNS = 24
"""Six steps or more on the embedded model."""
DEFAULT_PLOT = Path("openclaw-rl-demo.png")
INTERRUPTED = 130

_LOOK_S = 0.5
FULL_NUM_ITEMS, FULL_QUESTIONS = 400, 3
"""At the end: capability items, and times as many questions as in between."""
_PATIENCE_S = 300.0
"""How long nothing may come of what was said before the demo goes on without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoPlan:
    """What is asked for. Without turns and minutes it is `DEFAULT_TURNS`."""

    user: SimulatedUser
    num_turns: int | None = None
    minutes: float | None = None
    seed: int = 0
    num_questions: int = 12
    max_tokens: int = 256
    """Of an answer in a lesson: one that is cut is not learned from."""
    temperature: float = 0.7

    @property
    def questions(self) -> tuple[Question, ...]:
        """What the lessons are about; measured is with all kinds that the user asks."""
        asked = questions_for(self.user, load_questions("train"))
        short = getattr(self.user, "short_kinds", KINDS)
        return tuple(question for question in asked if question.kind in short) or asked

    @property
    def limit(self) -> int | None:
        return DEFAULT_TURNS if self.num_turns is None and self.minutes is None else self.num_turns


def run_demo(
    loaded: LoadedConfig,
    plan: DemoPlan,
    *,
    plot: Path | None,
    keep: bool,
    files: Sequence[Path],
    overrides: Sequence[str],
    as_json: bool,
) -> int:
    """The exit status. `plot` None draws one in this folder, if it can. Files and overrides are for a server that the
    demo starts."""
    if plan.num_turns is not None and plan.minutes is not None:
        raise ConfigError("give --turns or --minutes, not both")
    if plan.minutes is not None and not plan.minutes > 0:
        raise ConfigError(f"--minutes says for how long, and must be more than 0; got {plan.minutes:g}")
    console = make_console("stderr" if as_json else "stdout")
    plot = find_plot(plot, console)

    def say(line: str) -> None:
        console.print(line, style="dim", markup=False, soft_wrap=True)

    async def whole() -> int:
        user = plan.user
        async with demo_server(loaded, user.name, files=files, overrides=overrides, keep=keep, say=say) as server:
            title = f"{user.name} talks to {loaded.config.model.name}"
            board = Board(title=title, preference=user.preference, num_turns=plan.limit)
            demo = Demo(server, plan, board.tell)
            is_over, is_interrupted, status = False, False, 0
            try:
                with showing(board, console) as tell:
                    demo.tell = tell
                    await demo.run()
                is_over = True
            except asyncio.CancelledError:
                is_interrupted = True
            finally:
                server.is_kept = server.is_kept or (not is_over and server.has_learned())
                result = demo.result(is_interrupted=is_interrupted)
                status = show_result(result, console, plot=plot, as_json=as_json)
        return INTERRUPTED if is_interrupted else status

    return asyncio.run(_until_signal(whole()))


def find_plot(plot: Path | None, console: Console) -> Path | None:
    """Where the plot goes; one that nobody asked for is done without if it cannot be."""
    try:
        check_plot(found := plot or DEFAULT_PLOT)
    except ConfigError as error:
        if plot is not None:
            raise
        console.print(f"No plot: {error}", style="yellow", markup=False, soft_wrap=True)
        return None
    return found


async def _until_signal(whole: Coroutine[None, None, int]) -> int:
    """Ctrl-C cancels what goes on; what was seen so far is shown, and the server stopped, after that."""
    working = asyncio.create_task(whole)
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(name, working.cancel)
    try:
        return await working
    except asyncio.CancelledError:
        return INTERRUPTED


def show_result(result: DemoResult, console: Console, *, plot: Path | None, as_json: bool) -> int:
    """The exit status. That a plot failed is told and not raised: it must not hide what else ended a demo."""

    def draw(path: Path) -> None:
        title = f"{result.user.name}: “{result.user.preference}”"
        plot_curve(result.points, path, title=title)

    def show(drawn: Path | None) -> None:
        if as_json:
            print_json(result_json(result, plot=drawn))
        else:
            print_result(result, console, plot=drawn)

    try:
        show_with_plot(plot if len(result.points) > 1 else None, draw, show)
    except PlotFailed as error:
        complain(str(error))
        return 1
    return 0


@dataclass(slots=True)
class Demo:
    """One run. Points are in the order in which they were measured, the base model first."""

    server: DemoServer
    plan: DemoPlan
    tell: Tell
    clock: Callable[[], float] = time.monotonic
    records: list[SessionRecord] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    watcher: Watcher = field(init=False)
    _moved: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.watcher = Watcher(open_rows(self.server.store), self.server.line)

    async def run(self) -> None:
        """All of it; cancelling ends it where it is."""
        plan = self.plan
        await self._measure(0, self._exam(SMALL_NUM_ITEMS))
        try:
            async with (
                HttpChat(
                    self.server.url,
                    self.server.key,
                    temperature=plan.temperature,
                    max_tokens=plan.max_tokens,
                    seed=plan.seed,
                ) as chat,
                asyncio.TaskGroup() as group,
            ):
                beside = [group.create_task(self._watch()), group.create_task(self._measure_new())]
                await self._talk(chat)
                await self._settle()
                for task in beside:
                    task.cancel()
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        await self._measure_all()

    async def _talk(self, chat: Chat) -> None:
        questions = list(self.plan.questions)
        random.Random(self.plan.seed).shuffle(questions)
        ends_at = None if self.plan.minutes is None else self.clock() + 60 * self.plan.minutes
        number = 0
        while (self.plan.limit is None or number < self.plan.limit) and (ends_at is None or self.clock() < ends_at):
            if self.server.learns:
                await self._wait(lambda: self.watcher.num_waiting < self.server.batch_size)
            number += 1
            question = questions[(number - 1) % len(questions)]
            session = f"{self.server.line}-{self.plan.seed}-{number}"
            watched = _Watched(self, chat, number)
            self.records.append(await run_session(watched, watched, question, session=session, max_turns=1))

    async def _watch(self) -> None:
        while True:
            for event in await asyncio.to_thread(self.watcher.look):
                self.tell(event)
                self._moved.set()
            await asyncio.sleep(_LOOK_S)

    async def _settle(self) -> None:
        """Until what was said last is learned; or only judged, where there is nothing that could learn."""
        watcher = self.watcher
        if self.server.learns:
            await self._wait(lambda: watcher.is_quiet, text="waiting until the last lessons are learned")
        else:
            await self._wait(lambda: watcher.is_judged, text="waiting for the judge")
        self.tell(Doing(text=""))

    async def _wait(self, condition: Callable[[], bool], *, text: str = "") -> None:
        """For something in the store, as long as anything moves there."""
        while not condition():
            if text:
                self.tell(Doing(text=text))
            self._moved.clear()
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    await self._moved.wait()
            except TimeoutError:
                return

    async def _measure_new(self) -> None:
        """Each version that goes live; if they come faster than that, the newest."""
        measured = 0
        while True:
            number = self.watcher.live
            if number not in (0, measured):
                measured = number
                with suppress(AdminRefused):  # it may be gone already
                    await self._measure(number, self._exam(SMALL_NUM_ITEMS))
            else:
                await asyncio.sleep(_LOOK_S)

    async def _measure_all(self) -> None:
        """The base model and the last version once more, with more questions and items: what changed shows there."""
        for number in dict.fromkeys((0, self.watcher.live)):
            await self._measure(number, self._exam(FULL_NUM_ITEMS, times=FULL_QUESTIONS))

    async def _measure(self, number: int, exam: Exam) -> None:
        name = "the base model" if number == 0 else version_label(self.server.line, number)
        text = f"measuring {name} on {len(exam.questions)} held-out questions and {len(exam.items)} capability items"

        def on_progress(done: int, total: int) -> None:
            self.tell(Doing(text=text, done=done, total=total))

        num_lessons = self.watcher.num_lessons(number)
        found = await examine_version(self.server.store, self.server.line, number, exam, on_progress=on_progress)
        self.tell(Doing(text=""))
        self._keep(self._point(number, num_lessons, found))

    def _keep(self, point: Point) -> None:
        """A fuller measurement takes the place of the small one."""
        others = [one for one in self.points if one.number != point.number]
        self.points = sorted([*others, point], key=lambda one: (one.num_lessons, one.number))
        self.tell(Measured(point=point))

    def _point(self, number: int, num_lessons: int, found: Examination) -> Point:
        on_topic = traits(found.answers)["on_topic"]
        return Point(
            number=number,
            label=found.version,
            num_lessons=num_lessons,
            preference=preference(self.plan.user, found, seed=self.plan.seed),
            tokens=mean_tokens(found),
            on_topic=sum(on_topic) / len(on_topic),
            capability=None if found.capability is None else found.capability.interval,
            num_items=0 if found.capability is None else len(found.capability.items),
            examination=found,
        )

    def _exam(self, num_items: int, *, times: int = 1) -> Exam:
        plan = self.plan
        return exam_for(plan.user, num_questions=times * plan.num_questions, num_items=num_items, seed=plan.seed)

    def result(self, *, is_interrupted: bool) -> DemoResult:
        """As far as it came."""
        return DemoResult(
            user=self.plan.user,
            server=self.server,
            records=tuple(self.records),
            points=tuple(self.points),
            steps=tuple(self.watcher.steps.values()),
            versions=tuple(self.watcher.versions.values()),
            is_interrupted=is_interrupted,
            seed=self.plan.seed,
        )


class _Watched:
    """The chat and the user of one session, with somebody who looks on."""

    def __init__(self, demo: Demo, chat: Chat, turn: int) -> None:
        self.demo = demo
        self.chat = chat
        self.turn = turn
        self.name = demo.plan.user.name
        self.preference = demo.plan.user.preference

    async def reply(
        self,
        messages: Sequence[Message],
        *,
        session: str,
        model: str | None = None,
        tools: Sequence[Tool] = (),
        closing: bool = False,
    ) -> Reply:
        if closing:
            return await self.chat.reply(messages, session=session, model=model, tools=tools, closing=True)
        self.demo.tell(DemoAsked(turn=self.turn, question=messages[-1].content))
        reply = await self.chat.reply(messages, session=session, model=model, tools=tools)
        self.demo.watcher.add(split_turn_id(reply.turn_id)[0], self.turn)
        answered = DemoAnswered(turn=self.turn, version=reply.version, text=reply.text, num_tokens=reply.num_tokens)
        self.demo.tell(answered)
        return reply

    def react(self, question: Question, reply: str, turn: int) -> Reaction:
        user = self.demo.plan.user
        reaction, score = user.react(question, reply, turn), score_of(user, question, reply)
        content = reaction.is_content
        self.demo.tell(Reacted(turn=self.turn, message=reaction.message, is_content=content, score=score))
        return reaction

    def score(self, question: Question, reply: str) -> float:
        return score_of(self.demo.plan.user, question, reply)
