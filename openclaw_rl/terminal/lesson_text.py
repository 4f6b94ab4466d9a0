"""What was learned from a turn to lines for a person, and to JSON: judgement, credit, samples. Pure.

  judged     −1  by rules (rules-1): asks for a change
  vote       score −1  change request: shorter
  hint       Answer more briefly.
  sample     reward −1  advantage −0.80  RL 1 + OPD 1  12 of 12 tokens  prompt 31 tokens, teacher shares 27
  tokens     Gravity is a force by which …

In `tokens` what is trained is green where it is made more likely, red where less, blue where only a hint moves it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from rich.text import Text

from openclaw_rl.terminal.screen import one_line, printable
from openclaw_rl.terminal.turn_text import add_row
from openclaw_rl.types import Credit, Json, Judgement, Sample, Verdict, Vote

_SCORE_STYLES = {1: "green", 0: "", -1: "red", None: "yellow"}


def verdict_label(verdict: Verdict) -> str:
    """The four things a judge can come to, each by its own name."""
    return signed(verdict.score) if verdict.score is not None else verdict.outcome


def signed(value: float) -> str:
    """A score or advantage with its sign, and a zero without.

    >>> signed(-1), signed(0.0), signed(0.8)
    ('−1', '0', '+0.8')
    """
    number = f"{abs(value):.2f}".rstrip("0").rstrip(".") or "0"
    return number if number == "0" else f"{'−' if value < 0 else '+'}{number}"


def add_verdict(
    text: Text, label: str, judge: str, prompt_version: str, verdict: Verdict, *, limit: int | None
) -> None:
    """A verdict, its votes and its hints. One line for each vote on a screen; with no limit its raw text, uncut."""
    by = f"  by {judge} ({prompt_version})"
    is_told = not verdict.reason or verdict.reason in (vote.raw for vote in verdict.votes)
    reason = "" if is_told else f": {verdict.reason}"
    cut = None if limit is None else max(20, limit - len(by) - 6)
    told = Text.assemble((verdict_label(verdict), f"bold {_SCORE_STYLES[verdict.score]}"), (by, "dim"))
    told.append(printable(reason) if cut is None else one_line(reason, cut), "dim")
    add_row(text, label, told, limit=limit)
    for vote in verdict.votes:
        add_row(text, "vote", _vote(vote, limit=limit), limit=limit)
    for hint in verdict.hints:
        add_row(text, "hint", hint, limit=limit, style="cyan")


def add_credit(text: Text, credit: Credit, *, limit: int | None) -> None:
    """What a judgement came to, without its samples."""
    if credit.skip is not None:
        reward = "" if credit.reward is None else f"  reward {signed(credit.reward)} counts in the statistics"
        told = Text.assemble(("none: ", "yellow"), (credit.skip.value, "yellow"), (f"  {credit.rule}{reward}", "dim"))
        add_row(text, "sample", told, limit=limit)


def add_sample(text: Text, sample: Sample, tokens: Sequence[str], *, limit: int | None) -> None:
    """What a step would learn from; `tokens` are the texts of its response."""
    add_row(text, "sample", sample_line(sample), limit=limit)
    for candidate in sample.candidates:
        shared = f"  shares {candidate.num_shared} of {len(sample.prompt_ids)} prompt tokens"
        words = candidate.hint if limit is None else one_line(candidate.hint, max(20, limit - len(shared)))
        add_row(text, "teacher", Text.assemble((printable(words), "cyan"), (shared, "dim")), limit=limit)
    add_row(text, "tokens", mask_text(sample, tokens, limit=limit), limit=limit)


def sample_line(sample: Sample) -> Text:
    """The figures of a sample."""
    trained = [a for a, learned in zip(sample.advantages, sample.loss_mask, strict=True) if learned]
    low, high = (min(trained), max(trained)) if trained else (0.0, 0.0)
    advantage = signed(high) if signed(low) == signed(high) else f"{signed(low)} … {signed(high)}"
    weights = f"{sample.w_rl:g} RL + {sample.w_opd:g} OPD"
    counted = f"{len(trained)} of {len(sample.response_ids)} tokens"
    kind = "" if sample.kind == "turn" else f"  {sample.kind}: answers #{sample.prompt_index}"
    policy = "" if sample.on_policy else "  off-policy"
    return Text.assemble(
        *("reward ", (signed(sample.reward), _style(sample.reward)), "  advantage ", (advantage, _style(high + low))),
        (f"  {weights}  {counted}{kind}{policy}", "dim"),
    )


def mask_text(sample: Sample, tokens: Sequence[str], *, limit: int | None) -> Text:
    """The response, token by token, in the colours of what would be done to it."""
    text = Text()
    for token, advantage, learned in zip(tokens, sample.advantages, sample.loss_mask, strict=True):
        words = printable(token)
        if limit is not None:
            words = words.replace("\n", "⏎").replace("\t", " ")
            if len(text) + len(words) > limit - 1:
                return text.append("…", "dim")
        style = "dim" if not learned else _style(advantage) if sample.w_rl and advantage else "blue"
        text.append(words, style)
    return text


def judgement_json(judgement: Judgement) -> dict[str, Json]:
    """A stored judgement with every vote."""
    return {
        "judge": judgement.judge,
        "prompt_version": judgement.prompt_version,
        "judged_at": judgement.judged_at,
        "num_evidence": judgement.num_evidence,
        **verdict_json(judgement.verdict),
    }


def verdict_json(verdict: Verdict) -> dict[str, Json]:
    """`score` is null unless the outcome is `scored`."""
    return {
        "outcome": verdict.outcome,
        "score": verdict.score,
        "reason": verdict.reason,
        "hints": list(verdict.hints),
        "votes": [asdict(vote) for vote in verdict.votes],
    }


def credit_json(credit: Credit) -> dict[str, Json]:
    return {
        "rule": credit.rule,
        "credited_at": credit.credited_at,
        "reward": credit.reward,
        "skip": None if credit.skip is None else credit.skip.value,
    }


def sample_json(sample: Sample) -> dict[str, Json]:
    """A sample, whole: every list but `prompt_ids` and `candidates` has one entry for each response token."""
    return {
        "id": sample.id,
        "line": sample.line,
        "kind": sample.kind,
        "session": sample.session,
        "index": sample.index,
        "prompt_index": sample.prompt_index,
        "created_at": sample.created_at,
        "reward": sample.reward,
        "w_rl": sample.w_rl,
        "w_opd": sample.w_opd,
        "on_policy": sample.on_policy,
        "temperature": sample.temperature,
        "prompt_ids": list(sample.prompt_ids),
        "response_ids": list(sample.response_ids),
        "loss_mask": [int(learned) for learned in sample.loss_mask],
        "advantages": list(sample.advantages),
        "logprobs": None if sample.logprobs is None else list(sample.logprobs),
        "candidates": [
            {"hint": c.hint, "num_shared": c.num_shared, "suffix_ids": list(c.suffix_ids)} for c in sample.candidates
        ],
        "version_spans": [{"version": s.version, "start": s.start, "end": s.end} for s in sample.version_spans],
    }


def _vote(vote: Vote, *, limit: int | None) -> Text:
    said = "failed" if vote.score is None else signed(vote.score)
    # That there is a claim, or no correction, is neither good nor bad.
    style = "dim" if vote.question != "score" and vote.score is not None else _SCORE_STYLES[vote.score]
    told = Text.assemble((f"{vote.question:<5} ", "dim"), (f"{said:<3}", style))
    words = vote.failure if vote.score is None else vote.hint or vote.raw
    if vote.question == "claim":
        words = f"{vote.raw}; without it: {vote.rest}" if vote.rest else vote.raw
    if limit is not None:
        return told.append(" " + one_line(words, max(20, limit - len(told) - 1)), "dim")
    told.append(f" {printable(words)}", "dim")
    if vote.raw and vote.raw != words:
        told.append(f"\n{printable(vote.raw)}".replace("\n", "\n" + " " * 15), "dim italic")
    return told


def _style(value: float) -> str:
    return "green" if value > 0 else "red" if value < 0 else ""
