"""The judge that needs no model: Evidence -> Verdict by rules of language, in microseconds, the same every time.

    scored feedback                    decides the score
    the person's words                 judge/reactions.py finds praise, complaints, corrections, change requests ...
    tool results                       judge/tool_results.py tells errors from output; they decide where nobody spoke

A complaint, a correction or a change request makes -1 however kindly it is put, unless the person takes it back; thanks
and praise make +1, and so does moving on to the next thing; what is neither is 0, and where there is nothing to go by
the judge abstains. The hint is what the person asked for, put as an instruction about that reply.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from openclaw_rl.judge.findings import Finding, Scene
from openclaw_rl.judge.hints import accept_hints
from openclaw_rl.judge.language import load_languages
from openclaw_rl.judge.reactions import read_reaction
from openclaw_rl.judge.similarity import content
from openclaw_rl.judge.tool_results import Result, read_result
from openclaw_rl.types.learning import Evidence, Score, Verdict, Vote
from openclaw_rl.types.messages import Message

MAX_HINT_SENTENCES = 3
_QUOTED = re.compile(r"^[^:：]*[:：]\s*")
REPEATED = 0.5
"""A hint with no more news than this, as a part of its words, says again what one before it said."""


class RulesJudge:
    """See the module; `max_candidates` is how many hints it may hand on (it makes one)."""

    name = "rules"
    prompt_version = "rules-1"

    def __init__(self, *, max_candidates: int = 3) -> None:
        self._max_candidates = max_candidates

    async def judge(self, evidence: Evidence) -> Verdict:
        return self.verdict(evidence)

    def forget(self) -> None:
        """Nothing is kept."""

    async def close(self) -> None:
        """There is nothing to end."""

    def verdict(self, evidence: Evidence) -> Verdict:
        """What the rules say; pure."""
        findings = read_findings(last_said(evidence.request), evidence.reply.content, said_after(evidence))
        results = [read_result(m, evidence) for m in evidence.following if _is_result(m, evidence)]
        score, reason = _explicit(evidence)
        if score is None:
            score, reason = score_of(findings)
        if score is None and results:
            score, reason = _of_results(results)
        if score is None:
            return Verdict(outcome="abstained", reason=reason or "nothing to go by")
        hint = _hint(findings, results) if score < 0 else ""
        correction = Vote(question="hint", score=1, hint=hint, raw=reason)
        no_correction = Vote(question="hint", score=-1, raw="no direction")
        votes = (Vote(question="score", score=score, raw=reason), correction if hint else no_correction)
        accepted = accept_hints(votes, evidence, max_candidates=self._max_candidates)
        return Verdict(outcome="scored", score=score, reason=reason, votes=votes, hints=accepted)


def _is_result(message: Message, evidence: Evidence) -> bool:
    """Whether a tool returned it; what names a call that the reply did not make is somebody else's."""
    calls = {call.id for call in evidence.reply.tool_calls}
    return message.role == "tool" and (message.tool_call_id is None or message.tool_call_id in calls)


def last_said(messages: Sequence[Message]) -> str:
    """The last words of the user among some messages."""
    return next((m.content for m in reversed(messages) if m.role == "user"), "")


def said_after(evidence: Evidence) -> list[str]:
    """What people said after the reply, and about it."""
    return [m.content for m in evidence.following if m.role == "user"] + [f.text for f in evidence.feedback]


def read_findings(request: str, reply: str, said: Sequence[str]) -> list[Finding]:
    """The findings in everything that people said after a reply, in order."""
    scene = Scene(request, reply, *load_languages())
    return [finding for text in said if text.strip() for finding in read_reaction(text, scene)]


def _hint(findings: Sequence[Finding], results: Sequence[Result]) -> str:
    """What the person asked for; where nobody spoke, what the schema of a failed call asked for."""
    wanted = [finding.hint for finding in findings if finding.hint]
    if not findings:
        forms = load_languages()[1][0].replies
        wanted = [forms[r.hint.form].format(*r.hint.names) for r in results if r.hint]
    taken: list[str] = []
    for hint in wanted:
        told = content(_QUOTED.sub("", hint, count=1))
        if not taken or len(told - content(" ".join(taken))) > REPEATED * len(told):
            taken.append(hint)
    return " ".join(taken[:MAX_HINT_SENTENCES])


def _explicit(evidence: Evidence) -> tuple[Score | None, str]:
    """The latest score that somebody gave outright."""
    for feedback in reversed(evidence.feedback):
        if feedback.score is not None:
            return feedback.score, "explicit feedback"
    return None, ""


def score_of(findings: Sequence[Finding]) -> tuple[Score | None, str]:
    """What was said last of all if it takes the rest back; else a complaint before praise before moving on."""
    taken_back = max((i for i, f in enumerate(findings) if f.strength > 1), default=-1)
    counted = findings[max(taken_back, 0) :]
    for sign, strength in ((-1, 1), (1, 1), (1, 0), (-1, 0), (0, 0)):
        named = [f for f in counted if f.sign == sign and f.strength >= strength]
        if named:
            score: Score = -1 if sign < 0 else 1 if sign > 0 else 0
            return score, "; ".join(dict.fromkeys(_named(f) for f in named))
    return None, ""


def _named(finding: Finding) -> str:
    return f"{finding.rule}: {finding.words}" if finding.words else finding.rule


def _of_results(results: Sequence[Result]) -> tuple[Score | None, str]:
    """An error is one, unless most of the calls of the reply worked."""
    errors = [r for r in results if r.kind == "error"]
    worked = [r for r in results if r.kind == "success"]
    if errors and len(errors) >= len(worked):
        return -1, "; ".join(f"tool error: {r.rule}" for r in errors)
    if worked:
        return 1, "; ".join(dict.fromkeys(f"tool: {r.rule}" for r in worked))
    if any(r.rule == "nothing found" for r in results):
        return 0, "tool: nothing found"
    return None, "the tool gave no output"
