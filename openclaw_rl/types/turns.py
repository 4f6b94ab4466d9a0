"""What is recorded: sessions, turns token by token, and what followed them."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, field
from typing import Literal

from openclaw_rl.types.checks import require
from openclaw_rl.types.engine import TokenLogprob, VersionSpan
from openclaw_rl.types.episodes import Episode
from openclaw_rl.types.messages import Message, Sampling, Tool
from openclaw_rl.types.terms import KeyTerms

TurnKind = Literal["main", "side"]
FinishReason = Literal["stop", "length", "tool_calls", "abort", "error"]

LOCAL_USER = "local"
"""The person whose machine this is; owner of the key that is made at first start."""


class Skip(enum.StrEnum):
    """Why a turn is kept as a conversation but never trained on."""

    SIDE_TURN = "side_turn"
    """Housekeeping of the client (a title, a summary, a heartbeat): nobody reacts to its answer."""
    ABORTED = "aborted"
    """The client went away before the end of the answer."""
    ENGINE_FAILED = "engine_failed"
    """The engine failed over the answer, such as by weights that compute no probabilities."""
    ENGINE_LOST = "engine_lost"
    """The engine died or did not come up, and the answer could not be finished: that says nothing of who answered."""
    NO_NEXT_STATE = "no_next_state"
    """The session ended or expired before anything followed the answer."""
    NOT_EXACT = "not_exact"
    """The engine did not report one id and one log-prob per sampled token, or not as softmax(logits / T): some cannot
    where top-p, top-k, penalties or a bias are asked for."""
    OPTED_OUT = "opted_out"
    """The session, the message or its user asked not to be trained on."""
    REDACTED = "redacted"
    """A secret was found and taken out before it was stored (`store.redact`), and the ids with it."""
    JUDGE_FAILED = "judge_failed"
    """The judge gave no valid answer, however often it was asked."""
    ABSTAINED = "abstained"
    """The votes tie, or there is nothing to judge by; and no hint was accepted."""
    NEUTRAL = "neutral"
    """The judge says that the reaction is neither good nor bad, and no hint was accepted."""
    NO_HINT = "no_hint"
    """The method learns from hints alone, and none was accepted."""
    TRUNCATED = "truncated"
    """The answer was cut at its length limit, and had no hint that could be learned (`training.truncated`)."""
    CLAIM = "claim"
    """All that was said is about the matter of the answer, or how an answer that stands on it was liked."""
    ENVIRONMENT_FAILED = "environment_failed"
    """The environment of the episode failed: that says nothing of the agent."""
    SAME_OUTCOME = "same_outcome"
    """All attempts at the task were worth the same, or just one counts: nothing says which way was better."""
    TOO_FEW_TURNS = "too_few_turns"
    """The session is shorter than `rollout.min_turns`."""
    OTHER_MODEL = "other_model"
    """Another model, or a scripted one, sampled it: its ids mean nothing to the one that learns."""
    STALE = "stale"
    """Training came too late: the version that answered is older than `training.max_staleness` allows."""
    DISCARDED = "discarded"
    """An attempt at a task whose step was discarded, or whose version was rejected. To make new ones is quicker than to
    find out which one was the reason."""
    ALREADY_TRAINED = "already_trained"
    """A step learned from this turn before the new evidence came; no turn is learned from twice."""
    UNDONE = "undone"
    """A person took back what it taught (`openclaw-rl undo`); nobody learns from it again."""
    REJECTED = "rejected"
    """A person said that it is no lesson (`openclaw-rl reject`)."""


TAKEN_BACK = frozenset({Skip.UNDONE, Skip.REJECTED})
"""What a person decided, whatever is said or judged later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The sampled answer, token by token, exactly as the engine reported it."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason
    version_spans: tuple[VersionSpan, ...]
    top_logprobs: tuple[tuple[TokenLogprob, ...], ...] | None = None

    def __post_init__(self) -> None:
        require(
            len(self.token_ids) == len(self.logprobs),
            f"{len(self.token_ids)} token ids came with {len(self.logprobs)} log-probs",
        )
        position = 0
        for span in self.version_spans:
            require(span.start == position and span.end > span.start, f"version spans leave a gap at {position}")
            position = span.end
        require(position == len(self.token_ids), f"version spans cover {position} of {len(self.token_ids)} tokens")

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions that sampled this answer, in order."""
        return tuple(span.version for span in self.version_spans)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One conversation of one user with one client.

    `key` is the name the client gave it (a header or body key), None when it was inferred from the history. `episode`
    is the attempt at a task that it is part of; a person's conversation has none.
    """

    id: str
    user: str
    client: str
    opened_at: float
    last_seen_at: float
    key: str | None = None
    closed_at: float | None = None
    opted_out: bool = False
    episode: Episode | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSummary:
    """A session and what happened in it. `tokens` counts the sampled ones; `versions` are sorted by name."""

    session: Session
    main_turns: int
    side_turns: int
    tokens: int
    versions: tuple[str, ...]
    last_turn_at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A request and its answer.

    `prompt_ids` ends where sampling began; its last `num_prefill` ids belong to the answer's message although
    they were given, not sampled (a forced tool call opens that way). `chain` names the conversation up to and
    including the answer and `request_digest` the request alone (gateway/sessions/placement.py makes both).
    `model` names the model and tokenizer that answered. `message` is the assistant message as delivered. `label` is the
    client's own name for what it was doing (`user`, `cron`, `compaction`, …), if it gave one. `retrievable`: the client
    may ask for the answer again by its id.
    """

    session: str
    index: int
    parent: int | None
    kind: TurnKind
    created_at: float
    finished_at: float
    dialect: str
    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    sampling: Sampling
    stop: tuple[str, ...] = ()
    prompt_ids: tuple[int, ...]
    num_prefill: int = 0
    completion: Completion
    message: Message
    request_digest: str
    chain: str
    skip: Skip | None = None
    delivered: bool = False
    label: str = ""
    retrievable: bool = True

    def __post_init__(self) -> None:
        require(self.index >= 0, f"turn index must not be negative, got {self.index}")
        require(
            self.parent is None or 0 <= self.parent < self.index,
            f"turn {self.index} cannot continue turn {self.parent}",
        )
        require(0 <= self.num_prefill <= len(self.prompt_ids), "num_prefill exceeds the prompt")
        require(self.message.role == "assistant", f"an answer has role assistant, got {self.message.role!r}")

    @property
    def id(self) -> str:
        """`SESSION.INDEX`, the name that headers, commands and feedback use."""
        return turn_id(self.session, self.index)

    @property
    def answer_ids(self) -> tuple[int, ...]:
        """The exact ids of the assistant message: what was prefilled and what was sampled."""
        prefill = self.prompt_ids[len(self.prompt_ids) - self.num_prefill :] if self.num_prefill else ()
        return prefill + self.completion.token_ids


@dataclass(frozen=True, slots=True, kw_only=True)
class NextState:
    """Every message that arrived after a turn, in order: all tool results, and what the person said."""

    session: str
    index: int
    messages: tuple[Message, ...]
    arrived_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """What a person said about a turn outright: a score of -1, 0 or +1, a text, or both."""

    session: str
    index: int
    user: str
    given_at: float
    score: Literal[-1, 0, 1] | None = None
    text: str = ""

    def __post_init__(self) -> None:
        require(self.score in (None, -1, 0, 1), f"score must be -1, 0 or 1, got {self.score}")
        require(self.score is not None or bool(self.text), "feedback needs a score or a text")


_OWN_HINT = re.compile(r"\s*\[HINT_START\](?P<hint>.*)\[HINT_END\]\s*", re.DOTALL)


def own_hint(hint: str) -> str:
    """Feedback that is a hint: it takes the place of whatever a judge would read in other words."""
    return f"[HINT_START]{hint}[HINT_END]"


def hint_in(text: str) -> str | None:
    """The inverse; None for words that are no such hint.

    >>> hint_in(own_hint("Answer briefly.")), hint_in("Answer briefly.")
    ('Answer briefly.', None)
    """
    found = _OWN_HINT.fullmatch(text)
    return None if found is None else found["hint"].strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecord:
    """A turn, and all that was said after it."""

    turn: Turn
    next_state: NextState | None
    feedback: tuple[Feedback, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key of one user; only its SHA-256 is stored."""

    id: str
    user: str
    digest: bytes
    created_at: float
    label: str = ""
    revoked_at: float | None = None
    terms: KeyTerms = field(default_factory=KeyTerms)


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What other processes on the same store changed: sessions that have other turns, or none any more, and the keys.

    `missed`: more than is told here; all that is held in memory is to be read anew.
    """

    sessions: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    keys: bool = False
    missed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What was found when the store was opened for writing.

    `wal_bytes` is the log that a killed process left behind: 0 after an orderly stop. When it is not 0, or the database
    is not large, all of it was checked before anything else. `schema_from` 0 means a new store.
    """

    wal_bytes: int
    schema_from: int
    schema_to: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOutline:
    """As much of a turn as placing later requests needs."""

    index: int
    parent: int | None
    kind: TurnKind
    request_digest: str
    chain: str
    finish_reason: FinishReason
    delivered: bool
    has_next_state: bool
    has_tools: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOutline:
    """A session and the outlines of its turns, as the store knows them at start."""

    session: Session
    turns: tuple[TurnOutline, ...]

    @property
    def next_index(self) -> int:
        return max((turn.index for turn in self.turns), default=-1) + 1

    @property
    def has_tools(self) -> bool:
        """Whether the conversation itself, not what goes on beside it, was ever given tools."""
        return any(turn.has_tools and turn.kind == "main" for turn in self.turns)


def turn_id(session: str, index: int) -> str:
    """The name of a turn, `SESSION.INDEX`."""
    return f"{session}.{index}"


def split_turn_id(name: str) -> tuple[str, int]:
    """The session and index that `turn_id` joined; ValueError if `name` is not of that form."""
    session, dot, index = name.rpartition(".")
    valid = bool(session and dot) and index.isascii() and index.isdigit() and len(index) < 10
    require(valid, f"{name[:80]!r} is not a turn id (SESSION.INDEX)")
    return session, int(index)
