"""What heads make of a reaction, and what the rules read in it -> a verdict, and what of it rests on somebody's word.

the score   the heads where they are sure; else the plain praise or blame that the rules read; else nobody's, as is
            one where the two contradict each other
the hint    what the person wrote, word for word, where the hint head hears a correction or a wish in it, or where a
                bad score comes with a sentence about the form alone
a claim     a reaction about the matter: neither its score is learned nor its words, but for those about the form;
            nor a score of an answer to a question of fact, or of what stands on a claim (rules/claims.py)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from openclaw_rl.judge.heads.check import Sureness
from openclaw_rl.judge.heads.examples import Said
from openclaw_rl.judge.heads.model import Opinion
from openclaw_rl.judge.hints import accept_hints
from openclaw_rl.judge.rules import Standing, form_part, is_spoofed, is_unread, own_words, standing_of, stated_in
from openclaw_rl.types import Evidence, Score, Verdict, Vote

MIN_HINT_CHARS = 3
"""A person's own words may be short: "list!", and in Chinese three characters say much."""
_EARLIER = 6
"""Reactions before this one that are read for claims: the last ones."""


@dataclass(frozen=True, slots=True)
class Scales:
    """What decides beside the evidence: who was asked, from when on that counts, and how many hints are kept."""

    name: str
    sureness: Sureness
    max_candidates: int


def reaction_of(evidence: Evidence) -> Said | None:
    """What people said themselves; None where there is nothing for heads, as in words to the judge."""
    reaction = Said.of(evidence)
    own = replace(reaction, said=own_words(reaction.said))
    return own if own.said.strip() and not is_spoofed(reaction.said) else None


def decided(evidence: Evidence, reaction: Said, opinion: Opinion, by_rules: Verdict, scales: Scales) -> Verdict:
    """See the module."""
    heads, sureness = f"{scales.name}: {opinion.score:+d} at {opinion.sureness:.2f}", scales.sureness
    is_sure, rules = opinion.sureness >= sureness.score, by_rules.score or 0
    score: Score | None
    if is_sure and opinion.score * rules < 0:  # one of them has misheard, and nobody knows who
        score, raw = None, f"{heads}, rules: {by_rules.reason}; they contradict each other"
    elif is_sure and opinion.score < 0 and sureness.yields and by_rules.score == 0:
        score, raw = None, f"{heads} only; rules: {by_rules.reason}"
    elif is_sure and (opinion.score or not rules):
        score, raw = opinion.score, heads
    elif rules:
        score, raw = by_rules.score, f"rules: {by_rules.reason}; {heads}"
    else:
        score, raw = None, f"{heads} only; rules: {by_rules.reason}"
    is_wish = opinion.hint >= (sureness.lone_hint if score is None else sureness.hint)
    is_form = score == -1 and bool(form_part(reaction.said))
    is_hint = (is_wish or is_form) and score != 1 and rules <= 0
    said = f"{scales.name}: {opinion.hint:.2f}"
    hint = Vote(question="hint", score=1 if is_hint else -1, hint=quoted(reaction.said) if is_hint else "", raw=said)
    votes = (*(() if score is None else (Vote(question="score", score=score, raw=raw),)), hint)
    hints = accept_hints(votes, evidence, max_candidates=scales.max_candidates, min_chars=MIN_HINT_CHARS)
    if score is None:
        return Verdict(outcome="abstained", reason=raw, votes=votes, hints=hints)
    return Verdict(outcome="scored", score=score, reason=raw, votes=votes, hints=hints)


def quoted(said: str) -> str:
    """The person's own words as a hint: nothing is put into other words, so nothing is turned round."""
    return " ".join(said.split())


@dataclass(frozen=True, slots=True)
class Context:
    """What has to be read to know what a verdict stands on: `reactions` are this one and those before it."""

    standing: Standing
    reactions: tuple[Said, ...]
    states: bool
    """Whether this one states something beside the form, or may do so in a language without a list."""

    @classmethod
    def of(cls, evidence: Evidence) -> Context:
        standing, reaction = standing_of(evidence), Said.of(evidence)
        stated = stated_in(reaction.said, reaction.request, reaction.reply)
        earlier = (Said(*one) for one in standing.earlier[-_EARLIER:])
        return cls(standing, (reaction, *earlier), bool(stated) or is_unread(reaction.said))


def marked(verdict: Verdict, context: Context, opinions: Sequence[Opinion], scales: Scales) -> Verdict:
    """The verdict with a vote for what of it rests on somebody's word; `opinions` are of the context's reactions."""
    standing, (reaction, *earlier), (now, *before) = context.standing, context.reactions, opinions
    heard = zip(earlier, before, strict=True)
    told = [
        *standing.told,
        *(one.said for one, by in heard if by.matter >= scales.sureness.matter and not _is_form(one.said)),
    ]
    keeps = False
    least = scales.sureness.stated if context.states else scales.sureness.matter
    if now.matter >= least and verdict.score != 1 and not (standing.shows_code or _is_form(reaction.said)):
        raw = reaction.said
    elif standing.is_fact:
        raw = "a question of fact"
    elif told:
        raw, keeps = "; ".join(told), True
    else:
        return verdict
    votes = tuple(
        Vote(
            question="claim",
            score=1,
            hint=hint,
            rest=hint if keeps else form_part(hint),
            raw=f"{raw} ({scales.name}: {now.matter:.2f})",
        )
        for hint in verdict.hints or ("",)
    )
    return replace(verdict, votes=verdict.votes + votes)


def _is_form(said: str) -> bool:
    """Whether all that was said is about the form."""
    return form_part(said) == said.strip()
