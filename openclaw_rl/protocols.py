"""The seams of the system on one page. A stage receives its neighbours as these, wired in `wiring/`."""

from __future__ import annotations

from asyncio import Event, Future
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol, Self, runtime_checkable

from openclaw_rl.types import (
    AnswerEvent,
    ApiKey,
    Attempt,
    Baseline,
    Capabilities,
    Credit,
    Delta,
    Door,
    EndOfAttempt,
    EngineHealth,
    EngineState,
    Episode,
    EpisodeTally,
    Evidence,
    Exercise,
    Feedback,
    GenerateRequest,
    Grade,
    HeardPlace,
    Hidden,
    HiddenRequest,
    Json,
    JudgedTurn,
    Judgement,
    KeptCounts,
    KeyTerms,
    Lease,
    Lesson,
    Message,
    NextState,
    Observation,
    Opening,
    Outcome,
    Publication,
    Ran,
    Recovery,
    ReplayedTurn,
    RoomLease,
    Sample,
    Scored,
    ScoreOrder,
    ScoreReport,
    ScoreRequest,
    ServedTurn,
    Session,
    SessionOutline,
    SessionSummary,
    SignalWeights,
    Skip,
    Stage,
    StageTally,
    Step,
    StepOrder,
    StepReport,
    Task,
    TaskRef,
    TaskSource,
    Tool,
    ToolCall,
    Topic,
    TrainerCapabilities,
    Turn,
    TurnGlimpse,
    TurnRecord,
    TurnTrace,
    Undoing,
    Undone,
    Verdict,
    Version,
    VersionState,
    Waiting,
    WeightsRef,
)


class Engine(Protocol):
    """The policy being served: tokens in, tokens out.

    `generate` streams until a delta with a finish reason. Closing the iterator cancels the request. `EngineLost`
    means that the process died: what was already yielded stays valid, and the caller may go on from there.
    `publish` returns when the version is loaded and checked, and live if that was wished; requests that run finish
    on the version they began with. `retire` takes no new requests for a version; its memory is freed with the last.
    `forget_cache`: when it returns, no request finds what those of these salts left or still compute.
    """

    def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]: ...

    async def score(self, request: ScoreRequest) -> tuple[Scored, ...]: ...

    async def publish(self, publication: Publication) -> None: ...

    async def retire(self, version: str) -> None: ...

    async def forget_cache(self, salts: Collection[str]) -> None: ...

    async def state(self) -> EngineState: ...

    async def close(self) -> None: ...


@runtime_checkable
class HiddenReader(Protocol):
    """An engine may have this too; `Capabilities.hidden` says whether it does."""

    async def hidden(self, request: HiddenRequest) -> tuple[Hidden, ...]: ...


class EngineHost(Protocol):
    """An engine and its life: a supervised process of ours, a server elsewhere, or several as one.

    `run` keeps the engine alive until `stop`, which returns when nothing of it is left. Requests to `engine` wait
    until it is ready, `EngineUnavailable` if that takes too long. Nobody asks which engine it is: `capabilities` say
    what it can do.
    """

    @property
    def engine(self) -> Engine: ...

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def is_ready(self) -> bool: ...

    @property
    def state(self) -> EngineState | None:
        """What the engine said about itself after its last change; None before it was ready for the first time."""
        ...

    @property
    def last_error(self) -> str | None:
        """Why the engine does not answer; None once it is ready."""
        ...

    @property
    def num_restarts(self) -> int: ...

    async def wait_ready(self, timeout_s: float | None = None) -> EngineState: ...

    async def run(self) -> None: ...

    async def stop(self) -> None: ...


class Scorer(Protocol):
    """The part of an engine that proves what it serves."""

    async def score(self, request: ScoreRequest) -> tuple[Scored, ...]: ...

    async def state(self) -> EngineState: ...


@runtime_checkable
class EngineGroup(Protocol):
    """An `EngineHost` may be this too: several engines that answer as one."""

    @property
    def health(self) -> Sequence[EngineHealth]:
        """How each of them is, in the order of the settings."""
        ...

    def scorers(self, versions: Collection[str]) -> Mapping[str, Scorer]:
        """Each that answers with all of these versions now, by its name: a proof is made on every one.

        What is scored here is what an engine that joins later has to score too.
        """
        ...


class AnswerParser(Protocol):
    """Turns the text of one answer, as it grows, into the parts of an assistant message.

    `feed` gets newly decoded text and returns the events that are certain now; `finish` returns the rest.
    """

    num_closed_calls: int
    """Tool calls that were written to their end."""

    def feed(self, text: str) -> Iterable[AnswerEvent]: ...

    def finish(self) -> Iterable[AnswerEvent]: ...


class TextDecoder(Protocol):
    """Ids to text as they come; all texts together equal the decoding of all ids at once."""

    def push(self, token_ids: Sequence[int]) -> str: ...

    def finish(self) -> str: ...


class Renderer(Protocol):
    """Messages to ids and text to message parts, for one model family. Pure; safe to call from threads.

    `sampled[i]` holds the exact ids of the assistant message `messages[i]` where the engine sampled it: they are
    spliced in unchanged. `bridge` extends a finished turn by the messages that followed it, and returns None when
    this family cannot do so exactly.
    """

    stop_token_ids: tuple[int, ...]

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        sampled: Mapping[int, Sequence[int]],
    ) -> list[int]: ...

    def bridge(
        self,
        prompt_ids: Sequence[int],
        completion_ids: Sequence[int],
        messages: Sequence[Message],
        tools: Sequence[Tool],
    ) -> list[int] | None: ...

    def prefill(self, tool: str | None) -> str:
        """The text that opens a tool call: of `tool`, or of any tool when None."""
        ...

    def prefill_ids(self, tool: str | None) -> list[int]:
        """The ids of `prefill`, its tags as control tokens where the model has such."""
        ...

    def encode(self, text: str) -> list[int]:
        """Plain text to ids; special tokens spelled out in it stay plain text."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str: ...

    def decoder(self) -> TextDecoder: ...

    def token_bytes(self, token_id: int) -> bytes: ...

    def parser(self, tools: Sequence[Tool]) -> AnswerParser: ...


class Judge(Protocol):
    """Reads what followed a reply. Never raises for what a model or a function did: that is a failed verdict.

    `name` and `prompt_version` are stored with every judgement. `forget`: answers that were kept are not used again,
    since the judge is not believed. `close` ends what it needs.
    """

    @property
    def name(self) -> str: ...

    @property
    def prompt_version(self) -> str: ...

    async def judge(self, evidence: Evidence) -> Verdict: ...

    def forget(self) -> None: ...

    async def close(self) -> None: ...


class CreditRule(Protocol):
    """A judged turn -> what each of its signals weighs, or why it is not learned from. Pure."""

    name: str

    def weigh(self, verdict: Verdict) -> SignalWeights | Skip: ...


@runtime_checkable
class GroupRule(Protocol):
    """A credit rule may have this too: it weighs a complete group of attempts at one task as a whole. Pure.

    For each attempt and each of its steps it gives an advantage, or the reason why the step teaches nothing. Attempts
    whose environment failed are not among them.
    """

    def weigh_group(self, attempts: Sequence[Attempt]) -> Sequence[Sequence[float | Skip]]: ...


class Room(Protocol):
    """One attempt at one task. Whoever has it closes it; then nothing of it is left.

    `step` answers a call of one of the opening's tools, and `run` a command of a program that acts by itself. What the
    agent does wrong is an observation or an exit code; `EnvError` says that the environment failed.
    """

    async def open(self) -> Opening: ...

    async def solve(self) -> None:
        """Does what the task's author calls a solution, to try the task itself. `TaskError` where there is none."""
        ...

    async def step(self, call: ToolCall) -> Observation: ...

    async def run(self, command: str, *, timeout_s: float, env: Mapping[str, str]) -> Ran: ...

    async def evaluate(self) -> Grade:
        """The reward of what the agent left behind; graded where the agent has never been."""
        ...

    async def close(self) -> None: ...


class Environment(Protocol):
    """A track: tasks, and rooms in which they are attempted. Its name is that of the line it teaches, `env:NAME`.

    `TaskError` for a source that is none, or a task that cannot be attempted here.
    """

    @property
    def name(self) -> str: ...

    def sources(self) -> Sequence[TaskSource]: ...

    async def tasks(self, source: str) -> Sequence[Task]: ...

    async def room(self, task: TaskRef, *, gateway: str, programs: Mapping[str, Path]) -> Room:
        """A room for an attempt, not yet open. Programs in it reach the model at `gateway`, and nothing else.

        `programs`: what the harness needs there, a path in the box and the folder here that it shows.
        """
        ...


class EnvServer(Protocol):
    """Rooms on lease, here or on another machine.

    `allocate` with a `request_id` that was used before gives the same room. Calls of one lease with a `key` that was
    used before give the same answer: a command that is sent again never runs twice. A lease without heartbeats ends by
    itself. `EnvBusy`, `EnvGone`.
    """

    async def tasks(self, environment: str, source: str) -> Sequence[Task]: ...

    async def allocate(self, task: TaskRef, *, request_id: str) -> RoomLease: ...

    async def heartbeat(self, lease: str) -> RoomLease: ...

    async def reset(self, lease: str, *, key: str, gateway: str, harness: str) -> Opening:
        """A fresh room. Programs of the harness of this name are those of the server's machine; without one, none."""
        ...

    async def solve(self, lease: str, *, key: str) -> None: ...

    async def step(self, lease: str, call: ToolCall, *, key: str) -> Observation: ...

    async def exec(self, lease: str, command: str, *, key: str, timeout_s: float, env: Mapping[str, str]) -> Ran: ...

    async def evaluate(self, lease: str) -> Grade:
        """Graded once for each reset."""
        ...

    async def close(self, lease: str) -> None:
        """Returns when nothing of the room is left. What has ended already is no error."""
        ...

    async def status(self) -> Mapping[str, Json]: ...


class Harness(Protocol):
    """Who acts in a room: a small agent of ours, or a real program in the box. Its turns are captured by the gateway
    that `door` leads to; what it did is not told here."""

    @property
    def name(self) -> str: ...

    def programs(self) -> Mapping[str, Path]:
        """What must be in the box: a path there, and the folder here that it shows. `EnvError` with the remedy where it
        is not installed. Blocking."""
        ...

    async def attempt(self, room: Room, opening: Opening, door: Door) -> EndOfAttempt: ...


class EpisodeDesk(Protocol):
    """Where attempts begin and end, in the process that writes the store.

    `begin` gives the key of the attempt: what comes in with it belongs to the episode, and teaches its line if it is
    to `learn`. A `version` answers instead of the live one, and `heard` is told of each main turn that is stored. `end`
    takes the key back, closes the episode's sessions and stores how it ended; `report`, what the grader said, follows
    the attempt's last answer.
    """

    async def begin(
        self, episode: Episode, *, learn: bool, version: str = "", heard: Callable[[Turn], None] | None = None
    ) -> Door: ...

    async def end(self, outcome: Outcome, *, report: str = "") -> None: ...


class TaskExam(Protocol):
    """How versions of an environment's line do at tasks that were held out of training."""

    async def __call__(self, line: str, labels: Sequence[str], *, num_tasks: int) -> Sequence[Sequence[float]] | None:
        """For each of these loaded versions how much of each task it did, from 0 to 1; the same tasks for all.

        None if nobody was trained on this line yet. `EnvError` or `TaskError` where the tasks cannot be tried now.
        """
        ...


class StepPractice(Protocol):
    """What a step practises beside its samples. Credit prepares it; the train loop puts it into the order."""

    def exercises(self, step: Step, samples: Sequence[Sample]) -> tuple[Exercise, ...]:
        """The same for the same step and samples."""
        ...


class WeightsKeeper(Protocol):
    """Where versions' weights are kept: the part of a trainer that needs neither a model nor a process."""

    async def discard(self, weights: WeightsRef) -> None:
        """Removes a version's weights with all that belongs to them. What is gone already is no error.

        `TrainError` if something of it stays.
        """
        ...

    async def abandon(self, line: str, number: int) -> None:
        """Removes what a step left that no row names: it crashed, or was overtaken, before its version was written."""
        ...

    def adopt(self, folder: Path, line: str) -> Callable[[int], WeightsRef]:
        """Copies an adapter from elsewhere. What is returned gives it its version's number, in a moment. Blocking."""
        ...


class Trainer(WeightsKeeper, Protocol):
    """Takes optimiser steps. It makes the weights of versions, and it alone removes them.

    `TrainerLost`: it died over an order, which may be given again. `TrainError`: the order cannot be carried out so.
    """

    @property
    def capabilities(self) -> TrainerCapabilities: ...

    async def step(self, order: StepOrder) -> StepReport:
        """The weights that a report names are on disk, or wherever this trainer keeps them, when it arrives."""
        ...

    async def score(self, order: ScoreOrder) -> ScoreReport: ...

    async def rehearse(self, order: StepOrder) -> None:
        """Takes a step that nobody will have, so that the first real one finds the model read and kernels compiled."""
        ...

    async def close(self) -> None:
        """Ends it, also in the middle of an order: whatever it was at can be ordered again."""
        ...


class Wakeup(Protocol):
    """Says that there may be new work. Whoever waits clears it first and looks afterwards, so that none is overlooked.

    An `asyncio.Event` is one.
    """

    def set(self) -> None: ...
    def is_set(self) -> bool: ...
    def clear(self) -> None: ...
    async def wait(self) -> object: ...


class Wakeups(Protocol):
    """How loops hear of new work: events within one process, or what a database tells all that listen to it."""

    def woken(self, topic: Topic) -> Wakeup: ...


class WaitingSamples(Protocol):
    """What a step is planned from; a preview plans from rows that are only read."""

    async def next_step_number(self, line: str) -> int: ...
    async def versions(self, line: str) -> Sequence[Version]: ...
    async def waiting_samples(self, line: str | None, limit: int) -> list[Sample]: ...
    async def doubted_samples(self, line: str) -> list[str]: ...
    async def replayable_samples(self, line: str, *, number: int, max_age: int) -> list[str]: ...
    async def skip_samples(self, ids: Sequence[str], why: Skip) -> None: ...


class LearningStore(Wakeups, WaitingSamples, Protocol):
    """The durable log of what is learned; every call is one transaction, on disk when it returns.

    Work on a turn is leased; what it made is stored together with the end of the lease, and only by who still holds
    it. So work is done at least once and counted once. Steps have their samples for themselves from the moment they
    are planned. Versions and samples are those of the present model, unless every model's are asked for.

    Where it `is_shared`, other processes do the same work. What only one may do at a time, such as learning on a line,
    is done inside a claim; what is written inside is refused once the claim is lost.
    """

    @property
    def is_shared(self) -> bool: ...
    def claimed(self, name: str) -> AbstractAsyncContextManager[bool]:
        """Whether what has this name is this process's alone until the end."""
        ...

    async def lease(
        self, stage: Stage, *, limit: int, ttl_s: float, only_closed_sessions: bool = False, min_turns: int = 1
    ) -> list[Lease]: ...
    async def renew(self, leases: Sequence[Lease], *, ttl_s: float) -> list[Lease]: ...
    async def give_back(self, held: Lease, *, due_at: float, count_attempt: bool = True) -> bool: ...
    async def close_task(self, held: Lease) -> bool: ...
    async def release_earlier(self) -> int: ...
    async def next_due(self, stage: Stage, *, after: float = 0.0) -> float | None: ...
    async def num_open(self, stage: Stage, line: str | None = None) -> int: ...

    async def get_session(self, session_id: str) -> Session | None: ...
    async def sessions_of(self, name: str) -> list[str]: ...
    async def sessions_older_than(self, last_seen_at: float, *, limit: int = 100) -> list[str]: ...
    async def delete_session(self, session: str) -> None: ...
    async def outline(self, session_id: str) -> SessionOutline | None: ...
    async def get_turn(self, session_id: str, index: int) -> Turn | None: ...
    async def turns(self, session_id: str) -> list[Turn]: ...
    async def next_state(self, session_id: str, index: int) -> NextState | None: ...
    async def feedback(self, session_id: str) -> list[Feedback]: ...
    async def followed_turn(self, session_id: str, index: int) -> tuple[Session, TurnRecord] | None: ...

    async def put_episode(self, put: Episode) -> bool: ...
    async def put_outcome(self, outcome: Outcome) -> bool: ...
    async def unfinished_episodes(self) -> list[Episode]: ...
    async def episode(self, episode_id: str) -> tuple[Episode, Outcome | None] | None: ...
    async def group(self, name: str) -> list[tuple[Episode, Outcome | None, list[str]]]: ...

    async def put_judgement(self, held: Lease, judgement: Judgement) -> bool: ...
    async def put_judgements(self, judged: Sequence[tuple[Lease, Judgement]]) -> list[bool]: ...
    async def judged_turn(self, session_id: str, index: int) -> JudgedTurn | None: ...
    async def judgements(self, session: str) -> list[Judgement]: ...
    async def put_credit(self, held: Lease, credit: Credit) -> bool: ...
    async def credits(self, session: str) -> list[Credit]: ...
    async def baseline(self, line: str, turn_kind: str) -> Baseline: ...

    async def waiting(self) -> list[Waiting]: ...
    async def samples_named(self, ids: Sequence[str]) -> list[Sample]: ...
    async def planned_steps(self) -> list[Step]: ...
    async def plan_step(self, step: Step) -> None: ...
    async def finish_step(self, step: Step, version: Version | None, *, blameless: bool = False) -> bool: ...
    async def add_metrics(self, line: str, number: int, metrics: Mapping[str, float]) -> Step | None: ...

    async def versions(self, line: str | None = None, *, every_model: bool = False) -> list[Version]: ...
    async def put_imported(self, line: str, place: Callable[[int], WeightsRef]) -> Version: ...
    async def set_version_state(
        self,
        line: str,
        number: int,
        state: VersionState,
        *,
        reason: str = "",
        gate: Json = None,
        blameless: bool = False,
        only_if: Callable[[Sequence[Version]], bool] | None = None,
    ) -> bool: ...
    async def take_back(self, line: str, number: int, *, to: int, live_at: float, reason: str, gate: Json) -> bool: ...
    async def retire_stranded(self, line: str, *, reason: str) -> list[Version]: ...
    async def forget_files(self, line: str, numbers: Sequence[int]) -> None: ...
    async def hints(self, line: str, *, number: int, limit: int) -> list[str]: ...
    async def replayed_turns(self, line: str, *, model: str, limit: int, max_tokens: int) -> list[ReplayedTurn]: ...
    async def served_turns(self, line: str, label: str, *, since: float, limit: int) -> list[ServedTurn]: ...

    async def undo(
        self, lesson: Lesson, *, reason: str, loaded: Collection[int] | None = None, unusable: Collection[int] = ()
    ) -> Undone: ...
    async def was_taken_back(self, line: str, numbers: Collection[int]) -> bool: ...
    async def forget(self, lesson: Lesson, plan: Undoing) -> bool: ...

    async def flag(self, name: str) -> str | None: ...
    async def set_flag(self, name: str, value: str | None) -> None: ...
    async def run_with(self, model: str) -> None: ...


class ReadStore(Protocol):
    """The durable log for those who only look. Blocking; every answer is one consistent snapshot."""

    def sessions(self, user: str | None = None) -> list[SessionSummary]: ...
    def session(self, session_id: str) -> Session | None: ...
    def turns(self, session_id: str) -> list[Turn]: ...
    def turn(self, session_id: str, index: int) -> Turn | None: ...
    def next_states(self, session_id: str) -> list[NextState]: ...
    def next_state(self, session_id: str, index: int) -> NextState | None: ...
    def feedback(self, session_id: str) -> list[Feedback]: ...
    def records(self, session_id: str) -> list[TurnRecord]: ...
    def judgements(self, session: str) -> list[Judgement]: ...
    def credits(self, session: str) -> list[Credit]: ...
    def skips(self) -> dict[Skip, int]: ...
    def waiting(self) -> list[Waiting]: ...
    def waiting_samples(self, line: str | None, limit: int) -> list[Sample]: ...
    def samples_named(self, ids: Sequence[str]) -> list[Sample]: ...
    def doubted_samples(self, line: str) -> list[str]: ...
    def replayable_samples(self, line: str, *, number: int, max_age: int) -> list[str]: ...
    def num_returned(self) -> dict[str, int]: ...
    def steps(self, line: str) -> list[Step]: ...
    def planned_steps(self) -> list[Step]: ...
    def next_step_number(self, line: str) -> int: ...
    def versions(self, line: str | None = None, *, every_model: bool = False) -> list[Version]: ...
    def served_turns(self, line: str, label: str, *, since: float, limit: int) -> list[ServedTurn]: ...
    def episode(self, episode_id: str) -> tuple[Episode, Outcome | None] | None: ...
    def group(self, name: str) -> list[tuple[Episode, Outcome | None, list[str]]]: ...
    def num_open(self, stage: Stage, line: str | None = None) -> int: ...
    def flag(self, name: str) -> str | None: ...
    def keys(self) -> list[ApiKey]: ...

    def lines(self) -> list[str]: ...
    def has_turn(self, session: str, index: int) -> bool: ...
    def session_part(
        self, line: str | None, *, after: tuple[float, str] | None, limit: int, talks_only: bool = False
    ) -> list[SessionSummary]: ...
    def session_summaries(self, sessions: Sequence[Session]) -> list[SessionSummary]: ...
    def openings(self, sessions: Sequence[str]) -> dict[str, str]: ...
    def glimpses(self, session: str, *, before: int | None, limit: int) -> list[TurnGlimpse]: ...
    def heard_part(
        self, line: str | None, *, session: str | None = None, after: tuple[float, str, int] | None, limit: int
    ) -> list[HeardPlace]: ...
    def traces(self, turns: Collection[tuple[str, int]]) -> dict[tuple[str, int], TurnTrace]: ...
    def changed_turns(self, since: float, *, limit: int) -> list[tuple[str, int]]: ...
    def seen_sessions(self, since: float, *, limit: int) -> list[tuple[Session, int]]: ...
    def states(self) -> dict[tuple[str, int], str]: ...
    def step_samples(self, line: str, number: int) -> list[tuple[str, int]]: ...
    def tally(self, stage: str, line: str | None, *, since: float) -> StageTally: ...
    def captured(self, line: str | None, *, since: float) -> int: ...
    def steps_since(self, line: str | None, since: float) -> list[Step]: ...
    def newest_steps(self, *, limit: int) -> list[Step]: ...
    def episode_tallies(self) -> list[EpisodeTally]: ...
    def kept(self, user: str) -> KeptCounts: ...
    def skip_counts(self, line: str | None) -> dict[Skip, int]: ...


class Store(Protocol):
    """The durable log of what is said, as the gateway writes and asks it.

    Every write takes its place in line at once; its future is done when it is on disk. A write that failed raises
    `StoreUnavailable`. Nobody waits for a `mark_…`: losing one repeats work, no more.
    """

    def put_session(self, session: Session) -> Future[None]: ...

    def put_turn(self, turn: Turn) -> Future[None]: ...

    def put_next_state(self, state: NextState) -> Future[None]: ...

    def put_feedback(self, feedback: Feedback) -> Future[None]: ...

    def put_key(self, key: ApiKey) -> Future[None]: ...

    def mark_delivered(self, session: str, index: int) -> Future[None]: ...

    def mark_skip(self, session: str, index: int, reason: Skip) -> Future[None]: ...

    def close_session(self, session: str, closed_at: float) -> Future[None]: ...

    def revoke_key(self, key: str, revoked_at: float) -> Future[None]: ...

    def set_terms(self, key: str, terms: KeyTerms) -> Future[None]: ...

    async def can_write(self) -> bool:
        """False while every write fails; it tries again then."""
        ...

    async def find_session(self, user: str, name: str) -> SessionOutline | None: ...

    async def outline(self, session: str) -> SessionOutline | None: ...

    async def get_turn(self, session: str, index: int) -> Turn | None: ...

    async def turn_owner(self, session: str, index: int) -> str | None: ...

    async def num_feedback(self, session: str, index: int) -> int: ...

    async def record(self, session: str, index: int) -> TurnRecord | None: ...

    def settled(self) -> Event: ...

    async def settled_turns(self, user: str, after: str, *, limit: int) -> tuple[list[str], str]: ...

    async def open_turns(self, user: str, after: str, *, limit: int) -> tuple[list[str], str]: ...


class WholeStore(Store, Protocol):
    """The store of the one process that writes it. Leaving it closes it."""

    @property
    def lessons(self) -> LearningStore:
        """What is learned from the log."""
        ...

    @property
    def recovery(self) -> Recovery: ...

    async def load_open(self) -> list[SessionOutline]:
        """The sessions that nobody has closed."""
        ...

    async def load_private(self) -> list[str]:
        """The fingerprints of all answers in ended sessions that opted out."""
        ...

    async def keys(self) -> list[ApiKey]:
        """All keys, revoked ones too."""
        ...

    async def erase(self) -> bool:
        """Leaves nothing of what was deleted on the disk; False if somebody reads just now."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exception: object) -> None: ...
