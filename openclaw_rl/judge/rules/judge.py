"""The judge that needs no model: Evidence -> Verdict by rules of language, in microseconds, the same every time.

reactions.py finds praise, complaints, corrections and change requests in the person's words. A complaint, a correction
or a change request makes -1 however kindly it is put, unless the person takes it back. Thanks and praise make +1.
Anything else is 0: going on to the next thing, saying yes or answering a question is no praise. Where nobody spoke,
tool results (judge/tool_results.py) decide: an error is -1, a test that failed before and passes now is +1, and a call
that merely worked is 0.
Without anything to go by, and on words in a language without a list, the judge abstains. The hint is what the person
asked for, in their own words.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

from openclaw_rl.judge.hints import accept_hints
from openclaw_rl.judge.rules import claims
from openclaw_rl.judge.rules.findings import Finding
from openclaw_rl.judge.rules.language import load_languages
from openclaw_rl.judge.rules.reactions import UNREAD, last_said, read_findings, said_after, score_of
from openclaw_rl.judge.rules.similarity import content
from openclaw_rl.judge.tool_results import FAILED_TESTS, PASSED_TESTS, Result, calls_made, read_result
from openclaw_rl.types.learning import Evidence, Score, Verdict, Vote
from openclaw_rl.types.messages import Message

MAX_HINT_SENTENCES = 3
_QUOTED = re.compile(r"^[^:：]*[:：]\s*")
REPEATED = 0.5
"""A hint whose words are new only in this part repeats the hints before it."""


class RulesJudge:
    """See the module. `max_candidates` limits the hints; it makes one."""

    name = "rules"
    prompt_version = "rules-3"

    def __init__(self, *, max_candidates: int = 3) -> None:
        self._max_candidates = max_candidates

    async def judge(self, evidence: Evidence) -> Verdict:
        # In a thread: a few milliseconds for each text, and a turn may have many.
        return await asyncio.to_thread(self.verdict, evidence)

    async def marked(self, evidence: Evidence, verdict: Verdict) -> Verdict:
        """The verdict with a vote for what of it rests on somebody's word. In a thread: it reads the conversation."""
        return await asyncio.to_thread(claims.marked, evidence, verdict)

    def forget(self) -> None:
        """Nothing is kept."""

    async def close(self) -> None:
        """There is nothing to end."""

    def verdict(self, evidence: Evidence) -> Verdict:
        """What the rules say; pure."""
        findings = read_findings(last_said(evidence.request), evidence.reply.content, said_after(evidence))
        results = [read_result(m, evidence) for m in evidence.following if _is_result(m, evidence)]
        score, reason = score_of(findings)
        if score is None and any(finding.rule == UNREAD for finding in findings):
            return Verdict(outcome="abstained", reason=_unknown_language())
        if score is None and results:
            score, reason = _of_results(results, _failed_before(evidence))
        if score is None:
            return Verdict(outcome="abstained", reason=reason or "nothing to go by")
        hint = _hint(findings, results) if score < 0 else ""
        correction = Vote(question="hint", score=1, hint=hint, raw=reason)
        no_correction = Vote(question="hint", score=-1, raw="no direction")
        votes = (Vote(question="score", score=score, raw=reason), correction if hint else no_correction)
        accepted = accept_hints(votes, evidence, max_candidates=self._max_candidates)
        return Verdict(outcome="scored", score=score, reason=reason, votes=votes, hints=accepted)


def _unknown_language() -> str:
    titles = " and ".join(language.title for language in load_languages()[1])
    return f"{UNREAD}: the rules judge reads {titles}; set evaluation.judge=endpoint (or self, model) for others"


def _is_result(message: Message, evidence: Evidence) -> bool:
    """Whether the message is the result of a call that this reply made."""
    calls = {call.id for call in evidence.reply.tool_calls}
    return message.role == "tool" and (message.tool_call_id is None or message.tool_call_id in calls)


def _hint(findings: Sequence[Finding], results: Sequence[Result]) -> str:
    """What the person asked for; where nobody spoke, what the tool's schema asks of a call that failed."""
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


def _failed_before(evidence: Evidence) -> bool:
    """Whether tests failed earlier in the same piece of work."""
    earlier = (read_result(m, evidence, caller=by) for by, _, m in calls_made(evidence.request) if m is not None)
    return any(result.rule == FAILED_TESTS for result in earlier)


def _of_results(results: Sequence[Result], failed_before: bool) -> tuple[Score | None, str]:
    """The score by results: -1 for errors, unless most calls of the reply worked. To work alone is no progress."""
    errors = [r for r in results if r.kind == "error"]
    worked = [r for r in results if r.kind == "success"]
    if errors and len(errors) >= len(worked):
        return -1, "; ".join(f"tool error: {r.rule}" for r in errors)
    if failed_before and not errors and any(r.rule == PASSED_TESTS for r in worked):
        return 1, "tool: the tests pass now"
    if worked:
        return 0, "; ".join(dict.fromkeys(f"tool: {r.rule}" for r in worked))
    if any(r.rule == "nothing found" for r in results):
        return 0, "tool: nothing found"
    return None, "the tool gave no output"
