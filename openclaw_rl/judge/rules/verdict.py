"""Evidence -> what the rules alone say: plain praise and blame, plain requests, emoji, repeats, and tool results.

A complaint or a plain request for a change makes -1 however kindly it is put, unless the person takes it back. Thanks
and praise make +1. Going on to the next thing and saying yes are no praise. Where nobody spoke, tool results
(judge/tool_results.py) decide: an error is -1, a test that failed before and passes now is +1, and a call that merely
worked is 0. Without anything to go by, and on words in a language without a list, the rules abstain.
"""

from __future__ import annotations

from collections.abc import Sequence

from openclaw_rl.judge.hints import accept_hints
from openclaw_rl.judge.rules.language import load_languages
from openclaw_rl.judge.rules.reactions import UNREAD, last_said, read_findings, said_after, score_of
from openclaw_rl.judge.tool_results import FAILED_TESTS, PASSED_TESTS, Result, calls_made, read_result
from openclaw_rl.types.learning import Evidence, Score, Verdict, Vote
from openclaw_rl.types.messages import Message


def verdict_of(evidence: Evidence) -> Verdict:
    """What the rules say; pure."""
    findings = read_findings(last_said(evidence.request), evidence.reply.content, said_after(evidence))
    score, reason = score_of(findings)
    hints: list[str] = []
    if score is None and any(finding.rule == UNREAD for finding in findings):
        titles = " and ".join(language.title for language in load_languages()[1])
        remedy = "set evaluation.judge=endpoint (or self, model) for others"
        return Verdict(outcome="abstained", reason=f"{UNREAD}: the rules read {titles}; {remedy}")
    results = [read_result(m, evidence) for m in evidence.following if _is_result(m, evidence)]
    if score is None and results:
        score, reason = _of_results(results, _failed_before(evidence))
        hints = [result.hint for result in results if result.hint and score == -1 and not findings]
    if score is None:
        return Verdict(outcome="abstained", reason=reason or "nothing to go by")
    hinted = [Vote(question="hint", score=1, hint=hint, raw=reason) for hint in dict.fromkeys(hints)]
    votes = (Vote(question="score", score=score, raw=reason), *hinted)
    accepted = accept_hints(votes, evidence, max_candidates=1)
    return Verdict(outcome="scored", score=score, reason=reason, votes=votes, hints=accepted)


def _is_result(message: Message, evidence: Evidence) -> bool:
    """Whether the message is the result of a call that this reply made."""
    calls = {call.id for call in evidence.reply.tool_calls}
    return message.role == "tool" and (message.tool_call_id is None or message.tool_call_id in calls)


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
