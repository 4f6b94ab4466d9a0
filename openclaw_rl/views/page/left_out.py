"""Why nothing is learned from a turn, in a person's words, and what would change it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from openclaw_rl.protocols import ReadStore
from openclaw_rl.types import Skip
from openclaw_rl.views.page.corrections import LeftOut

_SAY_MORE = "Give it a thumb, or say in one sentence what the answer should have minded."

WORDS: Mapping[Skip, tuple[str, str]] = {
    Skip.SIDE_TURN: (
        "It is a program's housekeeping, such as a title or a summary.",
        "A client that means otherwise sends X-Turn-Type: main.",
    ),
    Skip.ABORTED: ("The answer was stopped before its end.", "Let an answer end, then say what was wrong."),
    Skip.ENGINE_FAILED: ("The engine failed over this answer.", "Ask again; the page of the machine has the reason."),
    Skip.ENGINE_LOST: ("The engine went away before the answer was finished.", "Ask again."),
    Skip.NO_NEXT_STATE: ("Nobody said anything about it before the conversation ended.", _SAY_MORE),
    Skip.NOT_EXACT: (
        "The engine could not tell exactly what it sampled.",
        "Ask without top_p, top_k, penalties or a bias, or use an engine that reports them exactly.",
    ),
    Skip.OPTED_OUT: ("It is private: this conversation, or this message, is not to be learned from.", ""),
    Skip.REDACTED: ("A secret was found in it, and taken out before it was stored.", "Say it without the secret."),
    Skip.JUDGE_FAILED: (
        "The judge gave no valid answer, however often it was asked.",
        "`openclaw-rl doctor` says what is wrong with the judge. " + _SAY_MORE,
    ),
    Skip.ABSTAINED: ("The judge could not say whether the answer was good or bad.", _SAY_MORE),
    Skip.NEUTRAL: ("What followed says neither good nor bad of the answer.", _SAY_MORE),
    Skip.NO_HINT: (
        "Only wishes in words are learned from (training.method), and none was found.",
        "Say what the answer should have minded.",
    ),
    Skip.TRUNCATED: (
        "The answer was cut at its length limit.",
        "Ask for a longer answer, or say what it should have minded.",
    ),
    Skip.CLAIM: (
        "It is about the facts of the matter, and one person's word does not prove them.",
        "Say how it should answer, rather than what is true.",
    ),
    Skip.ENVIRONMENT_FAILED: (
        "The environment of the attempt failed; that says nothing of the agent.",
        "`openclaw-rl env` shows what is wrong with it.",
    ),
    Skip.SAME_OUTCOME: (
        "All attempts at the task were worth the same, so nothing says which way was better.",
        "Tasks that it solves sometimes teach most.",
    ),
    Skip.TOO_FEW_TURNS: ("The conversation is shorter than rollout.min_turns.", "Talk on, or lower rollout.min_turns."),
    Skip.OTHER_MODEL: ("Another model gave this answer.", "Start that model again to learn from it."),
    Skip.STALE: (
        "Training came too late: the version that answered is too old by now.",
        "Raise training.max_staleness, or let it train more often.",
    ),
    Skip.DISCARDED: ("Its step was discarded, or its version rejected.", "New attempts are made by themselves."),
    Skip.ALREADY_TRAINED: (
        "The answer taught something before this was said; nothing is learned from twice.",
        "Say it about a newer answer.",
    ),
    Skip.UNDONE: ("What it taught was taken back.", ""),
    Skip.REJECTED: ("A person said that it is no lesson.", "Say it anew about another answer."),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOutCount:
    reason: str
    words: str
    remedy: str
    num_turns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOutCounts:
    items: tuple[LeftOutCount, ...]


def left_out(skip: Skip) -> LeftOut:
    words, remedy = WORDS[skip]
    return LeftOut(reason=skip.value, words=words, remedy=remedy)


def count_left_out(rows: ReadStore, line: str | None) -> LeftOutCounts:
    """Of a line, or of all, the commonest reason first."""
    counts = rows.skip_counts(line)
    return LeftOutCounts(
        items=tuple(
            LeftOutCount(reason=skip.value, words=WORDS[skip][0], remedy=WORDS[skip][1], num_turns=count)
            for skip, count in counts.items()
        )
    )
