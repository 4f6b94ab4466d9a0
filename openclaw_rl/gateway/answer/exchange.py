"""One request to its turns: place it, render it, sample it, and put it on disk before the client sees its end.

This is the heart of stage 1. It speaks no dialect: `app.py` hands it a `Request` and writes down what it yields.

    begin      waits for the engine, finds session and turn, renders the prompt; all that can refuse happens here
    pieces     samples every choice, as it comes; cut short, it keeps what there is as a turn that is never trained on
    commit     the turns are on disk from here on; only now may the last byte leave
    delivered  the last byte has left
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from asyncio import Future
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from openclaw_rl.errors import (
    EngineError,
    EngineLost,
    EngineRefused,
    EngineUnavailable,
    RequestError,
    StoreUnavailable,
)
from openclaw_rl.gateway.access.salts import CacheSalts
from openclaw_rl.gateway.access.shares import Shares
from openclaw_rl.gateway.answer.capture import Capture, Piece
from openclaw_rl.gateway.answer.heads import PromptHeads
from openclaw_rl.gateway.answer.memory import TokenMemory, TurnTokens, context_digest
from openclaw_rl.gateway.answer.pinning import not_served, pinned_version
from openclaw_rl.gateway.answer.prompt import Desk, Prompt, build_prompt, room, seen_tools
from openclaw_rl.gateway.sessions.history import Trace, trace
from openclaw_rl.gateway.sessions.identify import Identity
from openclaw_rl.gateway.sessions.known_turns import KnownTurn
from openclaw_rl.gateway.sessions.placement import Arrival, Ended, Placement, Sessions, owner_of
from openclaw_rl.gateway.sessions.wording import OPENCLAW
from openclaw_rl.protocols import Engine, Renderer, Store
from openclaw_rl.render.cache import owned_by
from openclaw_rl.types import (
    Completion,
    EngineState,
    FinishReason,
    Message,
    NextState,
    Request,
    Session,
    Skip,
    Turn,
    TurnKind,
    events_of,
    line_for,
)

log = logging.getLogger("openclaw_rl.gateway")

_VERSION_NOT_FOUND = "version_not_found"
"""How an engine refuses a version that it does not hold. Its words list all that it does: they are not passed on."""


_UNREADABLE = ("version_unreadable", "checksum_mismatch")
"""How an engine refuses a version whose files are gone, or are not what was published, when it needs them again."""
_AGAIN_S = 2
"""In which another version takes the place of such a one."""

_ROUNDS = 3
"""Each takes back what names the newest answer of a history; one is enough, if nothing goes meanwhile."""
_AT_ONCE = 100
"""Sessions that are read back together to be ended."""


class Background:
    """Writes that outlive the request they belong to; shutdown waits for them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.warning("a turn was not kept", extra={"reason": str(task.exception())})

    async def drain(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)


async def _nobody_hears(label: str, reason: str) -> None: ...


async def _base_only(line: str) -> str | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gist:
    """What a request's own words say, without looking at any other: its history, and what names its surroundings."""

    history: Trace
    context: bytes

    @classmethod
    def of(cls, request: Request, identity: Identity, user: str) -> Gist:
        """Goes through the whole conversation: not for the event loop where that is long."""
        return cls(
            history=trace(owner_of(user, identity.episode), request.messages, is_openclaw=identity.client == OPENCLAW),
            context=context_digest(request.messages, seen_tools(request)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """What every exchange needs from its neighbours."""

    engine: Engine
    renderer: Renderer
    store: Store
    sessions: Sessions
    memory: TokenMemory
    background: Background
    model_id: str
    """Names model and tokenizer: ids of another one mean nothing here."""
    live_label: Callable[[str], Awaitable[str | None]] = _base_only
    """The version that answers a line; None is the engine's own."""
    shares: Shares = field(default_factory=Shares)
    leaving: set[str] = field(default_factory=set)
    """Ended sessions that are being deleted: nobody takes them up again."""
    watched: dict[str, Callable[[Turn], None]] = field(default_factory=dict)
    """By episode: who hears of its main turns as they are stored."""
    on_turn: list[Callable[[Turn], None]] = field(default_factory=list)
    """Who hears of every turn that was stored; must take no time."""
    salts: CacheSalts = field(default_factory=CacheSalts)
    logprobs_changed_by: frozenset[str] = frozenset()
    """As the engine's `Capabilities` say."""
    on_unreadable: Callable[[str, str], Coroutine[None, None, None]] = _nobody_hears
    """Hears of a version that cannot be read any more, and why."""
    weight_of: Callable[[str], float] = lambda _: 1.0
    """How much a user counts where people take turns."""
    catch_up: Callable[[], Awaitable[None]] | None = None
    """Where other processes answer too: learns what they did, before a request is placed."""
    reserve: Callable[[str, int, int], Awaitable[int]] | None = None
    """And the numbers of turns, which no two of them give twice: of a session, from this one on, so many."""
    heads: PromptHeads | None = None
    """With `engine.share_heads`: what of a prompt may serve other users' prompts too."""

    async def begin(
        self,
        request: Request,
        identity: Identity,
        *,
        user: str,
        digest: str,
        dialect: str,
        gist: Gist | None = None,
    ) -> Exchange:
        """Opens the exchange for a request. `digest` names the request as sent, so that a retry can be told."""
        gist = gist or Gist.of(request, identity, user)
        state = await self.engine.state()
        line = line_for(user, identity.episode)
        version = pinned_version(request.model, line, state.versions) or await self.live_label(line)
        arrival = Arrival(
            user=user,
            client=identity.client,
            key=identity.scoped_key,
            episode=identity.episode,
            kind=identity.kind,
            messages=request.messages,
            history=gist.history,
            digest=digest,
            context=gist.context,
            has_tools=bool(request.tools),
            is_doubtful=identity.is_doubtful,
            opted_out=identity.no_train == "session",
            is_retry=identity.is_retry,
            may_repeat=request.num_choices == 1,  # several choices are several turns: none of them is the answer
        )
        if self.catch_up is not None:
            await self.catch_up()
        await self._reopen(user, identity.scoped_key)
        for _ in range(_ROUNDS):
            if not (needed := self.sessions.needed(arrival)):
                break
            await self.take_back(needed)
        placement = self.sessions.place(arrival)
        log.debug("turn %s is %s and goes on from %s", placement.turn.id, placement.turn.kind, placement.turn.parent)
        exchange = Exchange(self, request, identity, placement, pin=version, state=state, dialect=dialect)
        desk = Desk(renderer=self.renderer, shares=self.shares, user=user, window=state.context_window)
        try:
            if not placement.replay:
                await self.number(placement.turn, request.num_choices)
            if identity.no_train == "session":
                await self._opt_out(placement)
            await exchange.prepare(desk, gist.context)
        except BaseException:
            exchange.give_up()
            raise
        return exchange

    async def number(self, turn: KnownTurn, count: int) -> None:
        """Gives a running turn, and those that follow it for the same request, numbers that nobody else gives."""
        if self.reserve is not None:
            self.sessions.renumber(turn, await self.reserve(turn.session, turn.index, count))

    async def take_back(self, sessions: Collection[str]) -> None:
        """Reads open sessions that were put away back into memory, all at once: none goes before all are here."""
        outlines = [await self.store.outline(name) for name in sessions if not self.sessions.holds(name)]
        found = [one for one in outlines if one is not None and one.session.id not in self.leaving]
        for outline in sorted(found, key=lambda one: one.session.last_seen_at):
            if not self.sessions.holds(outline.session.id):
                self.sessions.restore(outline)
        for name in sessions:
            if not self.sessions.holds(name):
                self.sessions.gone(name)

    async def end_overdue(self) -> None:
        """Ends every session whose time is over."""
        while overdue := self.sessions.overdue(limit=_AT_ONCE):
            await self.take_back(overdue)
            await self._end(self.sessions.expired())
        await self._end(self.sessions.expired())

    async def _end(self, sessions: Iterable[Ended]) -> None:
        for ended in list(sessions):
            await self.end_session(ended)

    async def end_session(self, ended: Ended) -> None:
        """Writes down that a session is over, and that nothing will follow its last answers; of one that opted out
        nothing stays in memory. To its end, also if the client leaves as soon as it has the last byte."""
        await asyncio.shield(self.background.start(self._end_session(ended)))

    async def _end_session(self, ended: Ended) -> None:
        for turn in ended.dangling:
            self.store.mark_skip(turn.session, turn.index, Skip.NO_NEXT_STATE)
        if ended.session.opted_out:
            self.memory.forget(ended.session.id)
            await self._drop_cache({self.salts.of(ended.session)})
        await self.store.close_session(ended.session.id, ended.ended_at)

    async def forget_cache(self, sessions: Collection[Session]) -> None:
        """Nobody finds any more what the engine computed of these conversations; `EngineError` if that is in doubt."""
        if sessions:
            await self.engine.forget_cache(frozenset().union(*map(self.salts.touched_by, sessions)))

    async def _drop_cache(self, salts: Collection[str]) -> None:
        try:
            await self.engine.forget_cache(salts)
        except EngineError as error:  # it lies where only its own user finds it, until the room is needed
            log.warning("what a private session left in the engine's cache stays", extra={"reason": str(error)})

    async def _opt_out(self, placement: Placement) -> None:
        """What was said before in this session is not trained on either, whatever becomes of the request."""
        for turn in self.sessions.turns(placement.session.id):
            self.store.mark_skip(turn.session, turn.index, Skip.OPTED_OUT)
        if not placement.opened:
            self.store.put_session(placement.session)
        if placement.turns_private:
            await self._drop_cache(self.salts.touched_by(placement.session))

    async def _reopen(self, user: str, key: str | None) -> None:
        """A session that the client names may be one that ended long ago, or before a restart."""
        if key is None or self.sessions.knows(user, key):
            return
        outline = await self.store.find_session(user, key)
        if outline is None or outline.session.id in self.leaving:
            return
        if not self.sessions.knows(user, key) and not self.sessions.holds(outline.session.id):
            self.sessions.restore(outline)


@dataclass(frozen=True, slots=True)
class _Choice:
    turn: KnownTurn
    capture: Capture


class Exchange:
    """One request being answered."""

    def __init__(
        self,
        gateway: Gateway,
        request: Request,
        identity: Identity,
        placement: Placement,
        *,
        pin: str | None,
        state: EngineState,
        dialect: str,
    ) -> None:
        self._gateway = gateway
        self._request = request
        self._identity = identity
        self._placement = placement
        self._pin = pin
        self._state = state
        self._dialect = dialect
        self._created_at = time.time()
        self._tools = seen_tools(request)
        self._has_told = False
        self._prompt = Prompt([], "", 0, b"")
        self._num_shareable = 0
        self._choices: list[_Choice] = []
        self._replayed: Turn | None = None

    @property
    def version(self) -> str:
        """The weights that answer, as known when the answer begins."""
        return self._pin or self._state.live_version

    @property
    def turn_ids(self) -> tuple[str, ...]:
        return tuple(turn.id for turn in self._turns)

    @property
    def answers(self) -> list[tuple[Message, Completion]]:
        """Each choice as it stands now."""
        if self._replayed is not None:
            return [(self._replayed.message, self._replayed.completion)]
        return [(c.capture.message, c.capture.completion) for c in self._choices]

    @property
    def kind(self) -> TurnKind:
        return self._placement.turn.kind

    @property
    def num_prompt_tokens(self) -> int:
        return len(self._prompt.ids)

    @property
    def num_computed_tokens(self) -> int:
        """Of the prompt and all answers so far; none where an earlier answer was sent again."""
        if not self._choices:
            return 0
        return len(self._prompt.ids) + sum(len(one.capture.completion.token_ids) for one in self._choices)

    @property
    def num_cached_tokens(self) -> int:
        return max((c.capture.num_cached_tokens for c in self._choices), default=0)

    @property
    def _is_at_work(self) -> bool:
        """Whether an attempt at a task asks, and no person."""
        return self._placement.session.episode is not None

    async def prepare(self, desk: Desk, context: bytes) -> None:
        """Renders the prompt, or finds the stored answer of a retry."""
        if self._placement.replay:
            self._replayed = await self._stored_answer()
            if self._replayed is not None:
                self._prompt = Prompt(list(self._replayed.prompt_ids), "", self._replayed.num_prefill, b"")
                return
        placement, gateway = self._placement, self._gateway
        with owned_by(gateway.salts.of(placement.session)):
            self._prompt = await build_prompt(self._request, self._tools, context, placement, gateway.memory, desk)
            if gateway.heads is not None and not placement.session.opted_out:
                messages = self._request.messages
                self._num_shareable = await gateway.heads.num_tokens(self._prompt.ids, messages, self._tools)
        if self._is_at_work and placement.parent is None:
            # A task's own words: all attempts at it, and at others of its kind, begin with them.
            self._num_shareable = self.num_prompt_tokens
        max_tokens = room(self._prompt, self._request, self._state.context_window)
        for i in range(self._request.num_choices):
            shared_index = None if gateway.reserve is None else placement.turn.index + i
            turn = placement.turn if i == 0 else gateway.sessions.sibling(placement, index=shared_index)
            self._choices.append(_Choice(turn, self._capture(turn, i, max_tokens)))
        if placement.next_state is not None:
            # Before the answer, so that what a person said survives even if answering it fails.
            self._tell_next_state(placement.next_state)
            self._has_told = True

    async def _stored_answer(self) -> Turn | None:
        """The turn of a retry; None if a secret was taken out of it, so that it has to be answered again."""
        turn, sessions = self._placement.turn, self._gateway.sessions
        stored = await self._gateway.store.get_turn(turn.session, turn.index)
        if stored is None:
            raise StoreUnavailable(f"turn {turn.id} was acknowledged but cannot be read; run openclaw-rl doctor")
        if stored.prompt_ids:
            return stored
        if not sessions.holds(turn.session):
            raise RequestError("the session ended while this retry was looked up; send it again", status=409)
        self._placement = replace(self._placement, turn=sessions.sibling(self._placement), replay=False)
        await self._gateway.number(self._placement.turn, 1)
        return None

    def _tell_next_state(self, state: NextState) -> Future[None]:
        """What followed the turn before; or, if these words are not to be learned from, that nothing will follow it."""
        store = self._gateway.store
        if self._identity.no_train == "message":
            return store.mark_skip(state.session, state.index, Skip.OPTED_OUT)
        return store.put_next_state(state)

    def give_up(self) -> None:
        """Nothing of this request is kept: frees its place for a retry."""
        if not self._placement.replay:
            for turn in self._turns:
                self._gateway.sessions.failed(turn)
        if not self._has_told:
            self._gateway.sessions.withdraw(self._placement)

    async def pieces(self) -> AsyncGenerator[tuple[int, Piece], None]:
        """Everything that is sampled, with the number of its choice. Closing this early cancels all of it."""
        try:
            async with aclosing(self._sampled()) as pieces:
                async for numbered in pieces:
                    yield numbered
        except EngineRefused as refusal:
            self.give_up()
            if refusal.code == _VERSION_NOT_FOUND:
                raise not_served(self.version) from refusal
            if refusal.code in _UNREADABLE:
                self._gateway.background.start(self._gateway.on_unreadable(self.version, str(refusal)))
                raise RequestError(
                    "the version that answers you cannot be read any more; try again, and the one before it answers",
                    status=503,
                    code="version_unreadable",
                    retry_after_s=_AGAIN_S,
                ) from refusal
            raise RequestError(str(refusal), status=refusal.status, code=refusal.code) from refusal
        except EngineError as error:
            is_away = isinstance(error, EngineLost | EngineUnavailable)
            await self._written(skip=Skip.ENGINE_LOST if is_away else Skip.ENGINE_FAILED)
            raise
        except (asyncio.CancelledError, GeneratorExit):
            # The client is gone: nobody waits for this write, so it must not hold up the cancellation.
            self._gateway.background.start(self._written(skip=Skip.ABORTED))
            raise

    async def commit(self) -> None:
        """Returns when every turn of this request is on disk; `StoreUnavailable` if it is not."""
        await self._written(skip=None)
        log.debug("turns on disk: %s, by version %s", ", ".join(self.turn_ids), self.version)

    async def delivered(self) -> None:
        """The last byte has left: the same request is from now on a wish for another answer."""
        for turn in self._turns:
            turn.delivered = True
            self._gateway.store.mark_delivered(turn.session, turn.index)
        sessions, session_id = self._gateway.sessions, self._placement.session.id
        if self._identity.session_done and sessions.is_open(session_id):
            await self._gateway.take_back([session_id])  # a client that reads slowly outlasts what is in memory
        ended = sessions.end(session_id) if self._identity.session_done else sessions.end_if_wished(session_id)
        if ended is not None:
            await self._gateway.end_session(ended)

    @property
    def _turns(self) -> list[KnownTurn]:
        return [c.turn for c in self._choices] or [self._placement.turn]

    def _capture(self, turn: KnownTurn, number: int, max_tokens: int) -> Capture:
        sampling = self._request.sampling
        seed = None if sampling.seed is None else sampling.seed + number
        return Capture(
            renderer=self._gateway.renderer,
            request=self._request,
            tools=self._tools,
            request_id=f"{turn.id}-{secrets.token_hex(4)}",
            prompt_ids=self._prompt.ids,
            prefill=self._prompt.prefill,
            sampling=replace(sampling, seed=seed, max_tokens=max_tokens),
            version=self._pin,
            cache_salt=self._gateway.salts.of(self._placement.session),
            party=self._gateway.salts.party_of(self._placement.session),
            weight=self._gateway.weight_of(self._placement.session.user),
            num_shareable=self._num_shareable,
            conversation=turn.session,
            exact=self._is_at_work,  # what the version is worth is to be seen, not what the one before it read
        )

    async def _sampled(self) -> AsyncGenerator[tuple[int, Piece], None]:
        if self._replayed is not None:
            done = self._replayed.completion
            yield 0, Piece(events_of(self._replayed.message), done.token_ids, done.logprobs, done.top_logprobs)
        elif len(self._choices) == 1:
            async with aclosing(self._choices[0].capture.pieces(self._gateway.engine)) as pieces:
                async for piece in pieces:
                    yield 0, piece
        else:
            async with aclosing(self._interleaved()) as pieces_of_all:
                async for numbered in pieces_of_all:
                    yield numbered

    async def _interleaved(self) -> AsyncGenerator[tuple[int, Piece], None]:
        """The pieces of all choices in the order in which they are sampled."""
        queue: asyncio.Queue[tuple[int, Piece] | Exception | None] = asyncio.Queue(maxsize=64)

        async def sample(number: int, capture: Capture) -> None:
            try:
                async with aclosing(capture.pieces(self._gateway.engine)) as pieces:
                    async for piece in pieces:
                        await queue.put((number, piece))
            except Exception as error:  # raised again by the reader below, in whose task it belongs
                await queue.put(error)
            else:
                await queue.put(None)

        tasks = [asyncio.create_task(sample(i, c.capture)) for i, c in enumerate(self._choices)]
        try:
            num_running = len(tasks)
            while num_running:
                item = await queue.get()
                if isinstance(item, Exception):
                    raise item
                if item is None:
                    num_running -= 1
                else:
                    yield item
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _written(self, *, skip: Skip | None) -> None:
        """Writes to the end even if the client's task is cancelled meanwhile: what is on disk must be known here."""
        if self._replayed is None:
            turns = [self._as_turn(c, skip=skip) for c in self._choices]
            await asyncio.shield(self._gateway.background.start(self._write(turns)))

    def _as_turn(self, choice: _Choice, *, skip: Skip | None) -> Turn:
        completion, message = choice.capture.completion, choice.capture.message
        if skip is not None:
            finish: FinishReason = "abort" if skip is Skip.ABORTED else "error"
            completion = replace(completion, finish_reason=finish)
        elif self._placement.session.opted_out or self._identity.no_train is not None:
            skip = Skip.OPTED_OUT
        elif choice.turn.kind == "side":
            skip = Skip.SIDE_TURN
        elif choice.capture.sampling.shaping & self._gateway.logprobs_changed_by:
            skip = Skip.NOT_EXACT
        return Turn(
            session=choice.turn.session,
            index=choice.turn.index,
            parent=choice.turn.parent,
            kind=choice.turn.kind,
            created_at=self._created_at,
            finished_at=time.time(),
            dialect=self._dialect,
            model=self._gateway.model_id,
            messages=self._request.messages,
            tools=self._tools,
            sampling=choice.capture.sampling,
            stop=self._request.stop,
            prompt_ids=tuple(self._prompt.ids),
            num_prefill=self._prompt.num_prefill,
            completion=completion,
            message=message,
            request_digest=choice.turn.digest,
            chain=str(self._placement.trace.then(message)),
            skip=skip,
            label=self._identity.label,
            retrievable=self._request.retrievable,
        )

    def _tell_watcher(self, turn: Turn) -> None:
        episode = self._identity.episode
        if episode is not None and turn.kind == "main" and (hear := self._gateway.watched.get(episode.id)) is not None:
            hear(turn)
        for tell in self._gateway.on_turn:
            tell(turn)

    async def _write(self, turns: list[Turn]) -> None:
        store, sessions, placement = self._gateway.store, self._gateway.sessions, self._placement
        context = [store.put_session(replace(placement.session, last_seen_at=time.time()))]
        if placement.next_state is not None:
            context.append(self._tell_next_state(placement.next_state))
        results = await asyncio.gather(*context, *(store.put_turn(turn) for turn in turns), return_exceptions=True)
        for choice, turn, result in zip(self._choices, turns, results[len(context) :], strict=True):
            if result is not None:
                sessions.failed(choice.turn)
                continue
            aborted = turn.completion.finish_reason in ("abort", "error")
            sessions.finished(choice.turn, placement.trace.then(turn.message), aborted=aborted)
            self._tell_watcher(turn)
            self._gateway.memory.put(
                turn.id,
                TurnTokens.of(turn, self._prompt.context),
            )
        for result in results:
            if result is not None:
                sessions.withdraw(placement)
                raise result
