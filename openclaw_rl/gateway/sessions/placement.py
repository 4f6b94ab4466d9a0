"""Places each request: which session it belongs to, which turn it continues, whether it is a retry.

Turns an `Arrival` into a `Placement`. Pure bookkeeping in memory, rebuilt from the store at start: it does no I/O and
knows neither HTTP nor tokens. Only so many turns are in memory: sessions seen longest ago are put away (`away.py`), and
whoever places a request first takes back what `needed` names, which is then as after a restart.

    what the client sent                          where it lands
    --------------------------------------------  -------------------------------------------------------------
    a history that extends a known answer         the same session, child of that turn
    a known answer further up, then other words   the same session, a branch from that turn (edited history)
    a summary, then recent turns verbatim         the same session, child of the newest of those turns (compaction)
    a history that shows two answers as one       the same session, child of the later one
    the same request after a failure              the same turn, sampled again
    the words of a failed request, wrapped        the same turn, sampled again
    the same request, answer not yet delivered    the same turn, the stored answer again
    the same request, said to be a retry          the same turn, the stored answer again
    the same request after a delivered answer     a sibling (regenerate)
    a new history under a known session key       the same session, a new root (reset)
    … without tools, where turns have some        the same session, a new root that is side (upkeep)
    anything else                                 a new session

A new session whose history shows an answer of one that opted out, open or long over, is opted out from the beginning.

What followed an answer is told once, and only of main turns: by the first main request whose history shows the answer
and, after it, words of a person or a tool. An answer that no later history shows (resampled, empty) gets nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from openclaw_rl.errors import RequestError
from openclaw_rl.gateway.sessions.away import Away
from openclaw_rl.gateway.sessions.history import Answered, Fingerprint, Trace, after, reaction
from openclaw_rl.gateway.sessions.known_turns import KnownTurn, TurnIndex
from openclaw_rl.types import (
    LOCAL_USER,
    Episode,
    Message,
    NextState,
    Session,
    SessionOutline,
    TurnKind,
    TurnOutline,
)

_MAX_TAKEN_APART = 4
"""How many unknown answers of a history, from its end, are looked at as two in one."""
_MAX_RECALLED = 2
"""How many of the sessions that one mark names are taken back: where the last of them is taken, the one before is."""
_LONGEST_RETRY_S = 60
"""Where too many sessions are open: one may be ended at any time."""
_SETTLES_S = 1.0
"""What a session did last is on disk by then, and may be read back."""
_MAX_FURNITURE = 32
"""Most answers that a client puts into its requests itself; a history with more of them came from elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A request on its way to a place.

    `digest` names the exact request, so that a retry can be told; `is_retry`: the client says outright that it is one;
    `may_repeat` is false where an earlier answer cannot stand in. `context` names the system prompts and tools: it
    tells conversations apart that are otherwise equal. `history` is what `trace` makes of the messages. `is_doubtful`:
    taken for main because nothing says otherwise.
    """

    user: str
    client: str
    key: str | None
    kind: TurnKind
    messages: tuple[Message, ...]
    digest: str
    history: Trace
    context: bytes = b""
    has_tools: bool = False
    is_doubtful: bool = False
    opted_out: bool = False
    is_retry: bool = False
    may_repeat: bool = True
    episode: Episode | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where a request belongs.

    `answered[i]` is the known turn whose answer is `messages[i]`. `replay` asks for the stored answer again.
    `next_state` is what this request tells about the newest main turn in its history, once per turn. `turns_private`:
    the session was open, and opts out with this request.
    """

    session: Session
    opened: bool
    turn: KnownTurn
    parent: KnownTurn | None
    parent_position: int | None
    trace: Trace
    answered: Mapping[int, KnownTurn]
    replay: bool
    told: KnownTurn | None
    next_state: NextState | None
    turns_private: bool

    @property
    def extends_parent(self) -> bool:
        """Whether the whole history up to the parent's answer is the one that the parent answered."""
        if self.parent is None or self.parent.fingerprint is None:
            return False
        whole = self.parent.fingerprint.whole
        return any(a.position == self.parent_position and a.fingerprint.whole == whole for a in self.trace.answers)


@dataclass(slots=True)
class _OpenSession:
    session: Session
    next_index: int = 0
    num_running: int = 0
    is_ending: bool = False
    has_tools: bool = False
    turns: dict[int, KnownTurn] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ended:
    """A session that is over, and the main turns that nothing followed."""

    session: Session
    ended_at: float
    dangling: tuple[KnownTurn, ...]


class Sessions:
    """The index of open sessions, `max_open` at most, and of these about `max_turns` in memory. `timeout_s` after its
    last sign of life a session ends."""

    def __init__(
        self,
        *,
        timeout_s: float,
        new_id: Callable[[], str],
        max_open: int | None = None,
        max_turns: int = 4096,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._timeout_s = timeout_s
        self._max_open = max_open
        self._max_turns = max_turns
        self._num_turns = 0
        self._away = Away()
        self._new_id = new_id
        self._clock = clock
        self._open: dict[str, _OpenSession] = {}
        """The one that was asked last stands last."""
        self._by_key: dict[tuple[str, str], str] = {}
        self._by_digest: TurnIndex[tuple[str, str]] = TurnIndex()
        self._by_whole: TurnIndex[bytes] = TurnIndex()
        self._by_tail: TurnIndex[bytes] = TurnIndex()
        self._by_own: TurnIndex[bytes] = TurnIndex()
        self._failed: TurnIndex[bytes] = TurnIndex()
        self._private: set[bytes] = set()
        """What names the answers of ended sessions that opted out."""

    def __len__(self) -> int:
        return len(self._open) + len(self._away)

    @property
    def num_running(self) -> int:
        """Answers under way. Safe to ask from any thread."""
        return sum(home.num_running for home in tuple(self._open.values()))

    def restore(self, outline: SessionOutline) -> None:
        """Puts a session from the store back into the index: at start, when it is needed, or when a client names it."""
        session = outline.session
        self._away.remove(session.id)
        home = self._admit(session, outline.next_index)
        home.has_tools = outline.has_tools
        for row in outline.turns:
            self._add_known(home, _known(session, row))

    def learn(self, outline: SessionOutline) -> None:
        """Another process on the same store answered in this session, ended it, or opted it out."""
        session = outline.session
        home = self._open.get(session.id)
        if home is None and session.closed_at is None:
            self.restore(outline)
        elif home is None:
            self._away.remove(session.id)
        else:
            opted_out = session.opted_out or home.session.opted_out
            seen = max(session.last_seen_at, home.session.last_seen_at)
            home.session = replace(session, closed_at=None, opted_out=opted_out, last_seen_at=seen)
            home.next_index = max(home.next_index, outline.next_index)
            home.has_tools |= outline.has_tools
            for row in outline.turns:
                self._learn_turn(home, _known(session, row))
            if session.closed_at is not None and not home.num_running:
                self._take_out(home)
        if session.opted_out and session.closed_at is not None:
            self.keep_private(Fingerprint.parse(row.chain) for row in outline.turns)

    def _learn_turn(self, home: _OpenSession, told: KnownTurn) -> None:
        known = home.turns.get(told.index)
        if known is None:
            self._add_known(home, told)
        elif known.state != "running":
            known.delivered |= told.delivered
            known.has_next_state |= told.has_next_state
            if known.state == "aborted" and told.state == "finished":  # the same request was answered there
                self._forget_failure(known)
                self._forget_answer(known)
                known.state, known.asked, known.fingerprint = "finished", None, told.fingerprint
                self._index_answer(known)

    def _add_known(self, home: _OpenSession, turn: KnownTurn) -> None:
        home.turns[turn.index] = turn
        self._num_turns += 1
        self._by_digest.add((_owner(home.session), turn.digest), turn)
        self._index_answer(turn)

    def renumber(self, turn: KnownTurn, index: int) -> None:
        """A running turn gets the number that no other process gives."""
        home = self._open[turn.session]
        home.next_index = max(home.next_index, index + 1)
        if index == turn.index:
            return
        key = (_owner(home.session), turn.digest)
        self._by_digest.discard(key, turn)
        if home.turns.get(turn.index) is turn:
            del home.turns[turn.index]
        turn.index = index
        home.turns[index] = turn
        self._by_digest.add(key, turn)

    def session_of(self, session_id: str) -> Session | None:
        """A session that is in memory."""
        home = self._open.get(session_id)
        return None if home is None else home.session

    def keep_private(self, answers: Iterable[Fingerprint]) -> None:
        """Answers of ended sessions that opted out: whoever goes on from one of them is opted out too."""
        for answer in answers:
            self._private.update((answer.whole, answer.tail, answer.own))
        self._private.discard(b"")

    def knows(self, user: str, key: str) -> bool:
        """Whether a session of this name is open; if not, the store may still hold it."""
        return (user, key) in self._by_key

    def open_as(self, user: str, name: str) -> list[str]:
        """The open sessions that this user calls so, or so with a number after it: clients count what they begin anew
        under one name (`NAME:3`). If there is none, those whose ids are so."""

        def is_so(key: str) -> bool:
            head, colon, number = key.rpartition(":")
            return key == name or (head == name and bool(colon) and number.isdecimal())

        mine = [(key, found) for (owner, key), found in self._by_key.items() if owner == user]
        mine += self._away.names(user)
        named = [found for key, found in mine if is_so(key)]
        return named or [found for _, found in mine if is_so(found)]

    def open_of(self, user: str) -> list[str]:
        """The open sessions of a user."""
        mine = [found for (owner, _), found in self._by_key.items() if owner == user]
        return mine + [found for _, found in self._away.names(user)]

    def is_open(self, session_id: str) -> bool:
        return session_id in self._open or session_id in self._away

    def holds(self, session_id: str) -> bool:
        """Whether it is in memory; one that is open and is not can be taken back."""
        return session_id in self._open

    def needed(self, arrival: Arrival) -> set[str]:
        """The sessions that are away and must be back before this request is placed."""
        if arrival.key is not None or not len(self._away):
            return set()  # a session that is named is looked for in the store, if it is not here
        found = self._away.find([_request_mark(_owner(arrival), arrival.digest)], limit=_MAX_RECALLED)
        unknown: list[Answered] = []
        for answer in reversed(arrival.history.answers):
            here = self._by_whole.newest(answer.fingerprint.whole, None)
            if any(not turn.has_next_state for turn in here):
                break
            if shown := self._away.find(_marks(answer), limit=_MAX_RECALLED):
                return found | shown
            if here or self._match(answer, None, arrival.context) is not None:
                break
            unknown.append(answer)
        halves = (first for answer in unknown[:_MAX_TAKEN_APART] for first, _ in answer.as_two())
        return found | self._away.find(halves, limit=_MAX_RECALLED)

    def gone(self, session_id: str) -> None:
        """It was away, and is not in the store."""
        self._away.remove(session_id)

    def put_away(self) -> None:
        """Lets go of the turns of those sessions that were asked longest ago, until only so many are left."""
        now = self._clock()
        while self._num_turns > self._max_turns:
            idle = (s for s in self._open.values() if not s.num_running and not s.is_ending)
            home = next(idle, None)
            if home is None or now - _SETTLES_S < home.session.last_seen_at <= now:
                return
            marks = [mark for turn in home.turns.values() for mark in _marks_of(_owner(home.session), turn)]
            self._take_out(home)
            self._away.put(home.session, marks)

    def place(self, arrival: Arrival) -> Placement:
        """Finds the session and turn of a request, opening what is not there yet; RequestError if that is too many."""
        now = self._clock()
        placement = self._place(arrival, arrival.history, now)
        self._open[placement.session.id] = self._open.pop(placement.session.id)
        self.put_away()
        return placement

    def _place(self, arrival: Arrival, followed: Trace, now: float) -> Placement:
        named = self._named(arrival)
        # A session that the client names, known or not, never continues another one.
        scope = None if arrival.key is None else named.session.id if named else ""
        answered = self._answered(followed, scope, arrival.context)
        retried = self._retried(arrival, followed, scope, answered) if arrival.may_repeat else None
        if retried is not None:
            return self._place_again(retried, arrival, followed, answered, now)

        position, parent = self._newest_answer(followed, answered, scope)
        home = named or (self._open[parent.session] if parent else None)
        if home is None and arrival.key is None:
            home = self._twin_session(arrival)
        opened = home is None
        if home is None:
            home = self._new_session(arrival, now)
            arrival = replace(arrival, opted_out=arrival.opted_out or self._shows_private(followed))
        if arrival.is_doubtful and home.has_tools and parent is None:
            arrival = replace(arrival, kind="side")
        home.has_tools |= arrival.has_tools and arrival.kind == "main"
        opted_out = home.session.opted_out or arrival.opted_out
        turns_private = opted_out and not (opened or home.session.opted_out)
        home.session = replace(home.session, last_seen_at=now, closed_at=None, opted_out=opted_out)
        turn = self._new_turn(home, arrival, parent, followed, answered)
        told, next_state = self._next_state(arrival, answered, now)
        return Placement(
            session=home.session,
            opened=opened,
            turn=turn,
            parent=parent,
            parent_position=position,
            trace=followed,
            answered=answered,
            replay=False,
            told=told,
            next_state=next_state,
            turns_private=turns_private,
        )

    def sibling(self, placement: Placement, *, index: int | None = None) -> KnownTurn:
        """One more turn for the same request: `n` > 1, or a stored answer that cannot be given again."""
        home = self._open[placement.turn.session]
        turn = replace(placement.turn, index=home.next_index if index is None else index, state="running")
        turn.fingerprint, turn.delivered, turn.has_next_state = None, False, False
        self._add(home, turn)
        return turn

    def finished(self, turn: KnownTurn, fingerprint: Fingerprint, *, aborted: bool = False) -> None:
        """An answer, whole or cut short, is on disk: from now on a history may extend it."""
        turn.state = "aborted" if aborted else "finished"
        turn.fingerprint = fingerprint
        self._index_answer(turn)
        self._ran(turn)
        if aborted:
            self._index_failure(turn)
        else:
            turn.asked = None

    def failed(self, turn: KnownTurn) -> None:
        """Nothing of the turn was kept; the same request may take its place."""
        turn.state = "aborted"
        self._ran(turn)
        self._index_failure(turn)

    def withdraw(self, placement: Placement) -> None:
        """The next state that a request told was not kept either; a later request may tell it."""
        if placement.told is not None:
            placement.told.has_next_state = False

    def end(self, session_id: str) -> Ended | None:
        """Takes a session out of the index. While requests of it run it stays, and `end_if_wished` finishes the job.

        One that is away is dropped: who wants to know what of it is dangling takes it back first.
        """
        self._away.remove(session_id)
        home = self._open.get(session_id)
        if home is None:
            return None
        if home.num_running:
            home.is_ending = True
            return None
        self._take_out(home)
        dangling = tuple(
            t for t in home.turns.values() if t.kind == "main" and t.state == "finished" and not t.has_next_state
        )
        return Ended(home.session, self._clock(), dangling)

    def end_if_wished(self, session_id: str) -> Ended | None:
        """Ends a session that was to end when its last request had."""
        home = self._open.get(session_id)
        return self.end(session_id) if home is not None and home.is_ending else None

    def turns(self, session_id: str) -> Collection[KnownTurn]:
        """The known turns of an open session."""
        return self._open[session_id].turns.values()

    def expired(self) -> Iterator[Ended]:
        """Ends every session whose time is over."""
        limit = self._clock() - self._timeout_s
        idle = (s for s in self._open.values() if not s.num_running)
        for session in [s.session for s in idle if s.session.last_seen_at <= limit]:
            ended = self.end(session.id)
            if ended is not None:
                yield ended

    def overdue(self, *, limit: int) -> list[str]:
        """Sessions whose time is over and that are away: `expired` ends them once they are back."""
        return self._away.seen_before(self._clock() - self._timeout_s, limit=limit)

    def seconds_to_next_expiry(self) -> float:
        """How long nothing can expire. A session with running requests cannot: their end renews it."""
        seen = [s.session.last_seen_at for s in self._open.values() if not s.num_running]
        seen += [] if (first := self._away.first_seen()) is None else [first]
        return max(0.0, min(seen, default=self._clock()) + self._timeout_s - self._clock())

    def _take_out(self, home: _OpenSession) -> None:
        """Of every index, the private one excepted."""
        session = home.session
        del self._open[session.id]
        del self._by_key[session.user, session.key or session.id]
        self._num_turns -= len(home.turns)
        if session.opted_out:
            self.keep_private(turn.fingerprint for turn in home.turns.values() if turn.fingerprint is not None)
        for turn in home.turns.values():
            self._by_digest.discard((_owner(session), turn.digest), turn)
            self._forget_answer(turn)
            self._forget_failure(turn)

    def _named(self, arrival: Arrival) -> _OpenSession | None:
        session_id = None if arrival.key is None else self._by_key.get((arrival.user, arrival.key))
        return None if session_id is None else self._open[session_id]

    def _answered(self, followed: Trace, scope: str | None, context: bytes) -> dict[int, KnownTurn]:
        """The known turn behind each assistant message, all in one session: that of the newest match."""
        if scope is None:
            matches = (self._match(answer, None, context) for answer in reversed(followed.answers))
            newest = next((turn for turn in matches if turn is not None), None)
            scope = newest.session if newest is not None else ""
        found = ((answer.position, self._match(answer, scope, context)) for answer in followed.answers)
        return {position: turn for position, turn in found if turn is not None}

    def _match(self, answer: Answered, scope: str | None, context: bytes) -> KnownTurn | None:
        whole = self._by_whole.newest(answer.fingerprint.whole, scope)
        if whole:
            return min(whole, key=lambda t: (t.context != context, t.has_next_state))
        tail = self._by_tail.newest(answer.fingerprint.tail, scope)
        # The last exchange alone ("go on", "Done.") may occur in many sessions, known or not: then it proves nothing.
        if tail and (scope is not None or answer.has_telling_tail):
            return tail[0] if len({t.session for t in tail}) == 1 else None
        own = self._by_own.newest(answer.fingerprint.own, scope) if answer.fingerprint.own else []
        return own[0] if len(own) == 1 else None

    def _newest_answer(
        self, followed: Trace, answered: Mapping[int, KnownTurn], scope: str | None
    ) -> tuple[int, KnownTurn] | tuple[None, None]:
        """The turn that this history goes on from, and where its answer stands."""
        position = max(answered, default=-1)
        unknown = [a for a in followed.answers if a.position > position]
        for answer in unknown[: -_MAX_TAKEN_APART - 1 : -1]:
            for first, second in answer.as_two():
                turns = self._by_whole.newest(first, scope)
                if turns:
                    later = self._by_whole.newest(after(first, second), scope)
                    return answer.position, (later or turns)[0]
        return (position, answered[position]) if answered else (None, None)

    def _retried(
        self, arrival: Arrival, followed: Trace, scope: str | None, answered: Mapping[int, KnownTurn]
    ) -> KnownTurn | None:
        for turn in self._by_digest.newest((_owner(arrival), arrival.digest), scope):
            wanted = arrival.is_retry or not (turn.delivered or turn.has_next_state)
            if turn.state != "running" and wanted:
                return turn
        asked = followed.asked
        if asked is None:
            return None
        for turn in self._failed.newest(asked.base, scope):
            # Without a name or a common past, only the very same words are the same question.
            is_same = turn.asked == asked or bool(scope or answered)
            if is_same and turn.asked is not None and turn.asked.is_repeated_by(asked):
                return turn
        return None

    def _place_again(
        self, turn: KnownTurn, arrival: Arrival, followed: Trace, answered: Mapping[int, KnownTurn], now: float
    ) -> Placement:
        home = self._open[turn.session]
        opted_out = home.session.opted_out or arrival.opted_out
        turns_private = opted_out and not home.session.opted_out
        home.session = replace(home.session, last_seen_at=now, opted_out=opted_out)
        replay = turn.state == "finished"
        if not replay:
            self._forget_answer(turn)
            self._forget_failure(turn)
            turn.state = "running"
            home.num_running += 1
            if turn.digest != arrival.digest:
                self._by_digest.discard((_owner(arrival), turn.digest), turn)
                turn.digest, turn.context = arrival.digest, arrival.context
                self._by_digest.add((_owner(arrival), turn.digest), turn)
            if turn.asked is not None:
                followed = followed.asked_as(turn.asked)
        position, parent = next(((p, t) for p, t in answered.items() if t.index == turn.parent), (None, None))
        told, next_state = self._next_state(arrival, answered, now)
        return Placement(
            session=home.session,
            opened=False,
            turn=turn,
            parent=parent,
            parent_position=position,
            trace=followed,
            answered=answered,
            replay=replay,
            told=told,
            next_state=next_state,
            turns_private=turns_private,
        )

    def _twin_session(self, arrival: Arrival) -> _OpenSession | None:
        twins = self._by_digest.newest((_owner(arrival), arrival.digest), None)
        return self._open[twins[0].session] if twins else None

    def _shows_private(self, followed: Trace) -> bool:
        return any(self._is_private(answer) for answer in followed.answers)

    def _is_private(self, answer: Answered) -> bool:
        seen = answer.fingerprint
        if seen.whole in self._private or seen.own in self._private:
            return True
        if answer.has_telling_tail and seen.tail in self._private:
            return True
        return any(self._open[turn.session].session.opted_out for turn in self._by_whole.newest(seen.whole, None))

    def _new_session(self, arrival: Arrival, now: float) -> _OpenSession:
        if self._max_open is not None and len(self) >= self._max_open:
            raise RequestError(
                f"{len(self)} sessions are open, as many as rollout.max_concurrent_sessions allows; "
                "go on in one of them, end one, or try again when one has timed out",
                status=429,
                code="too_many_sessions",
                retry_after_s=max(1, min(_LONGEST_RETRY_S, math.ceil(self.seconds_to_next_expiry()))),
            )
        session = Session(
            id=session_id(arrival.user, arrival.key or self._unused_name(arrival.user)),
            user=arrival.user,
            client=arrival.client,
            key=arrival.key,
            opened_at=now,
            last_seen_at=now,
            episode=arrival.episode,
        )
        return self._admit(session, 0)

    def _unused_name(self, user: str) -> str:
        """A name for a session that has none; a client may have called one of its own so."""
        name = self._new_id()
        while self.knows(user, name):
            name = self._new_id()
        return name

    def _admit(self, session: Session, next_index: int) -> _OpenSession:
        home = self._open[session.id] = _OpenSession(session, next_index)
        self._by_key[session.user, session.key or session.id] = session.id
        return home

    def _new_turn(
        self,
        home: _OpenSession,
        arrival: Arrival,
        parent: KnownTurn | None,
        followed: Trace,
        answered: Mapping[int, KnownTurn],
    ) -> KnownTurn:
        strange = [a.digest for a in followed.answers if a.position not in answered]
        turn = KnownTurn(
            session=home.session.id,
            index=home.next_index,
            parent=parent.index if parent else None,
            kind=arrival.kind,
            digest=arrival.digest,
            context=arrival.context,
            asked=followed.asked,
            furniture=frozenset(strange if len(strange) <= _MAX_FURNITURE else ()),
            state="running",
        )
        self._add(home, turn)
        return turn

    def _add(self, home: _OpenSession, turn: KnownTurn) -> None:
        home.turns[turn.index] = turn
        self._num_turns += 1
        home.next_index = max(home.next_index, turn.index + 1)
        home.num_running += 1
        self._by_digest.add((_owner(home.session), turn.digest), turn)

    def _ran(self, turn: KnownTurn) -> None:
        home = self._open[turn.session]
        home.num_running -= 1
        home.session = replace(home.session, last_seen_at=self._clock())

    def _index_answer(self, turn: KnownTurn) -> None:
        if turn.fingerprint is not None:
            self._by_whole.add(turn.fingerprint.whole, turn)
            self._by_tail.add(turn.fingerprint.tail, turn)
            if turn.fingerprint.own:
                self._by_own.add(turn.fingerprint.own, turn)

    def _index_failure(self, turn: KnownTurn) -> None:
        if turn.asked is not None:
            self._failed.add(turn.asked.base, turn)

    def _forget_failure(self, turn: KnownTurn) -> None:
        if turn.asked is not None:
            self._failed.discard(turn.asked.base, turn)

    def _forget_answer(self, turn: KnownTurn) -> None:
        if turn.fingerprint is not None:
            self._by_whole.discard(turn.fingerprint.whole, turn)
            self._by_tail.discard(turn.fingerprint.tail, turn)
            self._by_own.discard(turn.fingerprint.own, turn)
            turn.fingerprint = None

    def _next_state(
        self, arrival: Arrival, answered: Mapping[int, KnownTurn], now: float
    ) -> tuple[KnownTurn, NextState] | tuple[None, None]:
        """The newest main turn that this request tells something new about, and what."""
        main = [(p, t) for p, t in answered.items() if t.kind == "main"]
        if arrival.kind != "main" or not main:
            return None, None
        at, turn = main[-1]
        told = reaction(arrival.history.heard, at, known=answered.keys(), furniture=turn.furniture)
        messages = tuple(arrival.messages[position] for position in told)
        if turn.has_next_state or not messages:
            return None, None
        turn.has_next_state = True
        return turn, NextState(session=turn.session, index=turn.index, messages=messages, arrived_at=now)


def _known(session: Session, row: TurnOutline) -> KnownTurn:
    """A turn from the store."""
    return KnownTurn(
        session=session.id,
        index=row.index,
        parent=row.parent,
        kind=row.kind,
        digest=row.request_digest,
        state="aborted" if row.finish_reason in ("abort", "error") else "finished",
        fingerprint=Fingerprint.parse(row.chain),
        delivered=row.delivered,
        # What was closed without a reaction stays so: a session that comes back begins with what it asks now.
        has_next_state=row.has_next_state or session.closed_at is not None,
    )


def _marks(answer: Answered) -> list[bytes]:
    """What may name the turn that this is the answer of."""
    seen = answer.fingerprint
    return [seen.whole, *([seen.tail] if answer.has_telling_tail else []), *([seen.own] if seen.own else [])]


def _marks_of(owner: str, turn: KnownTurn) -> Iterator[bytes]:
    yield _request_mark(owner, turn.digest)
    if (seen := turn.fingerprint) is not None:
        yield from (mark for mark in (seen.whole, seen.tail, seen.own) if mark)


def _request_mark(owner: str, digest: str) -> bytes:
    return blake2b(f"{owner}\0{digest}".encode("utf-8", "surrogatepass"), digest_size=8).digest()


def _owner(one: Arrival | Session) -> str:
    """Equal words of one owner are one conversation. Attempts at a task begin with equal words, so each is an owner."""
    return owner_of(one.user, one.episode)


def owner_of(user: str, episode: Episode | None) -> str:
    """Whose conversation it is, told apart where an agent attempts a task."""
    return user if episode is None else f"{user}/{episode.id}"


def session_id(user: str, key: str) -> str:
    """The id of the session that `user` calls `key`: the key itself for the local user, who is alone mostly.

    No two users can meet in one id: user names hold no slash, and a local key with one is prefixed too.
    """
    return key if user == LOCAL_USER and "/" not in key else f"{user}/{key}"
