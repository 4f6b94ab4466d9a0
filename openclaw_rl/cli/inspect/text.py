"""Views of sessions, turns and lessons -> lines for a person. Pure: no store, no clock, no screen.

#3 ← #1  main  2 min ago  v0  412 + 31 tokens  stop
  user       make it shorter
  assistant  Gravity pulls things together.
  next       user: thanks!
  feedback   +1 local: just right
  judged     −1  by rules (rules-1): asks for a change
  vote       score −1  change request: shorter
  hint       no, shorter please
  sample     reward −1  advantage −0.80  RL 1 + OPD 1  12 of 12 tokens
  tokens     Gravity is a force by which …

In `tokens` what is trained is green where it is made more likely, red where less, blue where only a hint moves it.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from openclaw_rl.cli.screen import ago, one_line
from openclaw_rl.types import Credit, Judgement, Message, Sample, Session, Turn, TurnRecord, Verdict, Vote, hint_in
from openclaw_rl.views.health import Backlog
from openclaw_rl.views.lessons import LessonView, signed, verdict_label
from openclaw_rl.views.tokens import TokenTexts

_LABEL = 11
_INDENT = _LABEL + 2
_LEAST = 40
_SCORE_STYLES = {1: "green", 0: "", -1: "red", None: "yellow"}


def session_text(session: Session, *, now: float) -> Text:
    """The head line of a session."""
    facts = [session.user, session.client, f"seen {ago(now - session.last_seen_at)}"]
    facts += [f"named {session.key}"] if session.key not in (None, session.id) else []
    facts += ["closed"] if session.closed_at is not None else []
    facts += ["opted out of training"] if session.opted_out else []
    return Text.assemble((one_line(session.id, 400), "bold"), "  ", (one_line(" · ".join(facts), 400), "dim"))


def room(width: int | None) -> int | None:
    """How many characters of a row's words fit on a screen; None for no limit."""
    return None if width is None else max(_LEAST, width - _INDENT)


def turn_text(record: TurnRecord, *, now: float, limit: int | None) -> Text:
    """A turn and what followed it: a line of `limit` each, or None for every message of the request, uncut."""
    turn = record.turn
    text = Text("\n")
    text.append_text(_head(turn, now=now))
    asked = turn.messages if limit is None else turn.messages[-1:]
    for message in asked:
        add_row(text, message.role, spoken(message), limit=limit)
    add_row(text, "assistant", spoken(turn.message), limit=limit, style="green")
    add_reaction(text, record, limit=limit)
    return text


def add_reaction(text: Text, record: TurnRecord, *, limit: int | None) -> None:
    """What followed a turn, and what was said about it outright."""
    for message in () if record.next_state is None else record.next_state.messages:
        add_row(text, "next", f"{message.role}: {spoken(message)}", limit=limit, style="dim")
    for given in record.feedback:
        score = "" if given.score is None else f"{given.score:+d} "
        hint = hint_in(given.text)
        said = f", own hint: {hint}" if hint is not None else f": {given.text}" if given.text else ""
        add_row(text, "feedback", f"{score}{given.user}{said}", limit=limit, style="cyan")


def add_row(text: Text, label: str, words: str | Text, *, limit: int | None, style: str = "") -> None:
    """A label and what it labels; words of our own may come with their colours."""
    text.append(f"\n  {label:<{_LABEL}}", "dim")
    if isinstance(words, Text):
        text.append_text(words)
    elif limit is None:
        text.append(words.replace("\n", "\n" + " " * _INDENT), style)
    else:
        text.append(one_line(words, limit), style)


def spoken(message: Message) -> str:
    """The words and the tool calls of a message."""
    parts = [message.content] if message.content else []
    parts += [f"→ {call.name}({call.arguments})" for call in message.tool_calls]
    return "\n".join(parts)


def backlog_text(backlog: Backlog) -> Text:
    """A warning where learning is paused, a line where something waits, and nothing where all is done."""
    text = Text()
    if backlog.paused is not None:
        text.append(f"Learning is paused: {backlog.paused}\n", "bold yellow")
    if backlog.training_paused is not None:
        text.append(f"{training_note(backlog.training_paused)}\n", "bold yellow")
    if backlog.waiting:
        text.append(f"{backlog.waiting}\n", "dim")
    return text


def training_note(reason: str) -> str:
    """Why nothing is trained; it is tried again without anybody's help."""
    return f"Training is paused: {reason}. Nothing is lost; it is tried again by itself."


def lesson_text(lesson: LessonView, tokens: TokenTexts, *, now: float, limit: int | None) -> Text:
    """A turn, its next state, the votes and hints, and the sample or the reason why there is none."""
    record, judgement, credit = lesson.record, lesson.judgement, lesson.credit
    text = turn_text(record, now=now, limit=limit)
    if judgement is not None:
        add_judgement(text, judgement, limit=limit)
    elif record.turn.skip is None and (record.next_state is not None or record.feedback):
        add_row(text, "judged", "not yet", limit=limit, style="yellow")
    if credit is not None:
        add_credit(text, credit, limit=limit)
        for sample in lesson.samples:
            add_sample(text, sample, tokens.texts(sample.response_ids, record.turn.model), limit=limit)
    elif judgement is not None:
        add_row(text, "sample", "not yet", limit=limit, style="yellow")
    return text


def add_judgement(text: Text, judgement: Judgement, *, limit: int | None) -> None:
    """What the judge said, and who judged."""
    add_verdict(text, "judged", judgement.judge, judgement.prompt_version, judgement.verdict, limit=limit)


def add_verdict(
    text: Text, label: str, judge: str, prompt_version: str, verdict: Verdict, *, limit: int | None
) -> None:
    """A verdict, its votes and its hints. One line for each vote on a screen; with no limit its raw text, uncut."""
    by = f"  by {judge} ({prompt_version})"
    is_told = not verdict.reason or verdict.reason in (vote.raw for vote in verdict.votes)
    reason = "" if is_told else f": {verdict.reason}"
    # Why there is no score is said in full: it may hold the remedy.
    cut = None if limit is None or verdict.score is None else max(20, limit - len(by) - 6)
    told = Text.assemble((verdict_label(verdict), f"bold {_SCORE_STYLES[verdict.score]}"), (by, "dim"))
    told.append(reason if cut is None else one_line(reason, cut), "dim")
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
        add_row(text, "teacher", Text.assemble((words, "cyan"), (shared, "dim")), limit=limit)
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
        *(
            "reward ",
            (signed(sample.reward), reward_style(sample.reward)),
            "  advantage ",
            (advantage, reward_style(high + low)),
        ),
        (f"  {weights}  {counted}{kind}{policy}", "dim"),
    )


def mask_text(sample: Sample, tokens: Sequence[str], *, limit: int | None) -> Text:
    """The response, token by token, in the colours of what would be done to it."""
    text = Text()
    for token, advantage, learned in zip(tokens, sample.advantages, sample.loss_mask, strict=True):
        words = token
        if limit is not None:
            words = token.replace("\n", "⏎").replace("\t", " ")
            if len(text) + len(words) > limit - 1:
                return text.append("…", "dim")
        style = "dim" if not learned else reward_style(advantage) if sample.w_rl and advantage else "blue"
        text.append(words, style)
    return text


def _head(turn: Turn, *, now: float) -> Text:
    completion = turn.completion
    # A conversation that just goes on needs no arrow: only a root further down and a branch do.
    came_from = "" if turn.parent == turn.index - 1 else " (root)" if turn.parent is None else f" ← #{turn.parent}"
    came_from = "" if turn.index == 0 else came_from
    parts = [
        ago(now - turn.created_at),
        " → ".join(dict.fromkeys(completion.versions)) or "no version",
        f"{len(turn.prompt_ids)} + {len(completion.token_ids)} tokens",
        completion.finish_reason,
    ]
    head = Text.assemble((f"#{turn.index}{came_from}", "bold"), f"  {turn.kind}", ("  " + "  ".join(parts), "dim"))
    if turn.skip is not None:
        head.append(f"  not trained: {turn.skip.value}", "yellow")
    return head


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
    told.append(f" {words}", "dim")
    if vote.raw and vote.raw != words:
        told.append(f"\n{vote.raw}".replace("\n", "\n" + " " * 15), "dim italic")
    return told


def reward_style(value: float) -> str:
    return "green" if value > 0 else "red" if value < 0 else ""
