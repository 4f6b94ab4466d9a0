"""From a reaction to a training sample: what a judge sees and says, and what becomes of it.

    Turn + NextState + Feedback -> Evidence -> Verdict -> Judgement (a Verdict about one turn, stored)
    Judgement -> Credit: a Sample, sometimes more (a demonstration, an accepted rewrite), or a Skip with its reason

Four things are told apart everywhere: the judge failed (`failed`), it cannot say (`abstained`: a tie, or nothing to go
by), it says neutral (`scored` with 0), and nobody judged yet (there is no judgement).

Worked example, "no, shorter please" after an answer of 90 tokens, method `combine`:

    Verdict(outcome="scored", score=-1, votes=(Vote(question="score", score=-1, raw="change request"), ...),
            hints=("Answer more briefly.",))
    Sample(id="s-5f1c.0", reward=-1.0, advantages=(-0.8,) * 90, w_rl=1.0, w_opd=1.0,
           candidates=(Candidate(hint="Answer more briefly.", num_shared=31, suffix_ids=(1, 9690, ..., 520)),), ...)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from openclaw_rl.types.checks import require
from openclaw_rl.types.engine import VersionSpan
from openclaw_rl.types.messages import Message, Tool
from openclaw_rl.types.turns import Feedback, Session, Skip, Turn, split_turn_id, turn_id

Score = Literal[-1, 0, 1]
VoteQuestion = Literal["score", "hint", "claim"]
VerdictState = Literal["scored", "abstained", "failed"]
SampleKind = Literal["turn", "rewrite", "demonstration", "anchor", "exercise"]

SIDE_ROLES_ONLY = "only roles beside the main line followed"
"""Why a judge abstains where `rollout.message_classification` leaves nothing of what followed a reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a judge sees of one turn.

    `request` are the messages that the reply answers, the last of them at the end, and `history` what came before
    them, both from the turn's own request. `following` is every message that came after the reply and counts as
    feedback, in order. `feedback` is what people said about the reply outright. `is_cut`: the reply ended at its length
    limit. `is_last`: the session is over, so that nothing may have followed.
    """

    request: tuple[Message, ...]
    reply: Message
    following: tuple[Message, ...]
    history: tuple[Message, ...] = ()
    tools: tuple[Tool, ...] = ()
    feedback: tuple[Feedback, ...] = ()
    is_cut: bool = False
    is_last: bool = False

    def __post_init__(self) -> None:
        require(
            bool(self.following or self.feedback or self.is_last),
            "there is nothing to judge by: no message and no feedback",
        )
        require(self.reply.role == "assistant", f"a reply has role assistant, got {self.reply.role!r}")


FINDING = "finding: "
"""How the raw text of a vote begins that no judge cast: the reply shows it of itself."""
CALLED_AGAIN = " was called again with the same arguments and nothing new in between"
"""How the finding of a repeated call ends, behind the tool's name."""
NOT_ASKED = "; not by "
"""Leads in the reason of a verdict to the judge that should have given it, and why it did not: "; not by heads: …"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """One answer of a judge to one question; `raw` are its own words.

    The question `score`: `score` is the verdict. The question `hint`: 1 means that the next state holds a correction,
    then with the `hint`; -1 that it does not. The question `claim`: 1 means that somebody speaks of the matter, of this
    reply or one that it stands on; `raw` is what, `hint` an accepted hint that repeats it, if one does, and `rest` what
    of that can be followed without believing anything. None is a failure: `failure` says why there is no valid answer.
    """

    question: VoteQuestion
    score: Score | None
    hint: str = ""
    rest: str = ""
    failure: str = ""
    raw: str = ""

    def __post_init__(self) -> None:
        require((self.score is None) == bool(self.failure), "a vote has a score, or else the reason why it failed")
        require(self.question != "score" or not self.hint, "the question for a score is not answered with a hint")
        require(
            self.question == "score" or self.score != 0,
            "whether there is a correction is answered by 1 or -1",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a judge says about a reply. `hints` are the accepted ones, the shortest first; `reason` is for people.

    `score` is the vote: good, neutral or bad. `value` is the judge's own number where it gave one, such as 0.37.
    """

    outcome: VerdictState
    score: Score | None = None
    value: float | None = None
    reason: str = ""
    votes: tuple[Vote, ...] = ()
    hints: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require((self.outcome == "scored") == (self.score is not None), f"{self.outcome} came with score {self.score}")
        require(self.outcome == "scored" or bool(self.reason), f"{self.outcome} needs a reason")
        if self.value is not None:
            fits = self.score is not None and math.isfinite(self.value) and (self.value > 0) - (self.value < 0)
            require(fits == self.score, f"the value {self.value} came with score {self.score}")

    @property
    def reward(self) -> float | None:
        """What the reply is worth, a real number; None where nobody could say."""
        return self.value if self.value is not None or self.score is None else float(self.score)

    @property
    def claims(self) -> bool:
        """Whether the score rests on what somebody says is so."""
        return any(vote.question == "claim" and vote.score == 1 for vote in self.votes)

    @property
    def unclaimed_hints(self) -> tuple[str, ...]:
        """The hints, of those that repeat a claim what is left without it."""
        left = {vote.hint: vote.rest for vote in self.votes if vote.question == "claim"}
        return tuple(dict.fromkeys(filter(None, (left.get(hint, hint) for hint in self.hints))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The verdict on one turn, given on its first `num_evidence` pieces of evidence; more of them make a new one."""

    session: str
    index: int
    num_evidence: int
    judge: str
    prompt_version: str
    judged_at: float
    verdict: Verdict

    @property
    def turn_id(self) -> str:
        return turn_id(self.session, self.index)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedTurn:
    """What credit is given for: a turn and its newest judgement.

    `reward` is what was counted for it before, if anything was, and `before` the newest verdict on its parent.
    """

    session: Session
    turn: Turn
    judgement: Judgement
    reward: float | None
    before: Verdict | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalWeights:
    """What each signal of a judged turn weighs in its loss; `reward` is any number, 0.0 where only hints teach."""

    reward: float
    w_rl: float
    w_opd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A prompt for the teacher: the first `num_shared` ids of the sample's prompt, then `suffix_ids`."""

    hint: str
    num_shared: int
    suffix_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One row that a step learns from; every tuple but `prompt_ids` and `candidates` has one entry per response token.

    `logprobs` are the sampler's, under softmax(logits / temperature); None for a rewrite, whose response was sampled
    behind another prompt. `on_policy` False marks answers that were sampled greedily, truncated or penalised: their
    importance weight never exceeds 1. `line` is whose adapter learns from it. `prompt_index` is the turn whose prompt
    it has: another one than `index` for a rewrite only. A demonstration is the base model's own answer to the request
    with the hint, to be learned behind the prompt without it; it has no log-probs either. An anchor is no one's turn:
    what the base model says to a fixed prompt, so that a step does not lose it; nor is an exercise, an answer to an
    everyday question. Both are made by a trainer and never stored.
    """

    id: str
    line: str
    kind: SampleKind
    session: str
    index: int
    prompt_index: int
    created_at: float
    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    loss_mask: tuple[bool, ...]
    advantages: tuple[float, ...]
    logprobs: tuple[float, ...] | None
    temperature: float
    on_policy: bool
    reward: float
    w_rl: float
    w_opd: float
    candidates: tuple[Candidate, ...]
    version_spans: tuple[VersionSpan, ...]
    is_returned: bool = False
    """A step learned from it and was undone, for no fault of its own: it is never too old to be learned again."""

    def __post_init__(self) -> None:
        size = len(self.response_ids)
        require(size > 0, "a sample needs response tokens")
        require(bool(self.prompt_ids), "a sample needs prompt tokens: its response is predicted from them")
        for name in ("loss_mask", "advantages", "logprobs"):
            values = getattr(self, name)
            require(values is None or len(values) == size, f"{name} has {len(values or ())} of {size} entries")
        for candidate in self.candidates:
            require(
                0 <= candidate.num_shared <= len(self.prompt_ids),
                f"a candidate shares {candidate.num_shared} of {len(self.prompt_ids)} prompt ids",
            )
            require(bool(self.teacher_prompt(candidate)), "a candidate needs prompt tokens")
        require(self.w_opd == 0.0 or bool(self.candidates), "w_opd needs a candidate to distil from")

    def teacher_prompt(self, candidate: Candidate) -> tuple[int, ...]:
        """The prompt with the candidate's hint in it."""
        return self.prompt_ids[: candidate.num_shared] + candidate.suffix_ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Exercise:
    """An everyday question that a student answers, and how a teacher reads it: with a wish behind it.

    `temperature` is that of the answers that the wish was about, `w_opd` as loud as it was said there.
    """

    prompt_ids: tuple[int, ...]
    candidate: Candidate
    temperature: float
    w_opd: float

    @property
    def hinted_ids(self) -> tuple[int, ...]:
        """The prompt with the wish behind the question."""
        return self.prompt_ids[: self.candidate.num_shared] + self.candidate.suffix_ids


def sample_id(session: str, index: int, kind: SampleKind) -> str:
    """A turn makes at most one sample of each kind, so its name says which."""
    return turn_id(session, index) if kind == "turn" else f"{turn_id(session, index)}+{kind}"


def turn_of_sample(name: str) -> tuple[str, int]:
    """The session and index of what `sample_id` named; ValueError if it is no such name."""
    turn, plus, kind = name.rpartition("+")
    return split_turn_id(turn if plus and kind in get_args(SampleKind) else name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The running mean of rewards of one line and one kind of turn."""

    line: str
    turn_kind: str
    mean: float = 0.0
    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Credit:
    """What one judgement comes to: samples, or the reason why there are none; and what it adds to the statistics."""

    session: str
    index: int
    num_evidence: int
    rule: str
    credited_at: float
    reward: float | None = None
    """What the judgement is worth; None where it is worth nothing. Statistics count it also where `skip` is set."""
    skip: Skip | None = None
    samples: tuple[Sample, ...] = ()
    baseline: Baseline | None = None
    """The new state of the running mean that this reward moved, if it did."""

    def __post_init__(self) -> None:
        require((self.skip is None) == bool(self.samples), "a credit has samples, or else the reason why it has none")


Stage = Literal["judge", "credit"]


Topic = Literal["warm", "judge", "credit", "train", "watch", "versions", "sessions", "page"]
"""What a loop is woken for: a turn, evidence, a judgement, a sample, a turn or verdict that says something of a
version; a version that answers, or does no more; a session that another process changed; the page for any of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to work on one turn until `until`, proved by `token`: who leases it after that gets a higher one.

    `num_evidence` counts the next state and the feedback that were known when it was leased. `owner` names the run of
    the process that holds it.
    """

    stage: Stage
    session: str
    index: int
    num_evidence: int
    attempts: int
    token: int
    until: float
    owner: str = ""

    @property
    def turn_id(self) -> str:
        return turn_id(self.session, self.index)
