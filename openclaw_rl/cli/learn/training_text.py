"""What `openclaw-rl train` came to, and what it would learn from next: lines for a person, and JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Group
from rich.table import Table
from rich.text import Text

from openclaw_rl.cli.inspect.text import backlog_text
from openclaw_rl.cli.learn.importing import Imported, Rollout
from openclaw_rl.cli.screen import one_line, plain_table
from openclaw_rl.protocols import ReadStore
from openclaw_rl.types import Json, Step, version_label
from openclaw_rl.views.health import Backlog, read_backlog
from openclaw_rl.views.lessons import signed
from openclaw_rl.views.upcoming import NextStep
from openclaw_rl.views.versions import StepView, list_steps


@dataclass(slots=True, kw_only=True)
class TrainOutcome:
    """What a run came to, as far as it came; `views`, `backlog` and `num_waiting` are as they stand at its end."""

    steps: list[Step] = field(default_factory=list)
    imported: Imported | None = None
    is_interrupted: bool = False
    views: Sequence[StepView] = ()
    backlog: Backlog | None = None
    num_waiting: int = 0

    def look(self, rows: ReadStore) -> Backlog:
        """Takes in how it stands in the store."""
        self.views = list_steps(rows, self.steps)
        self.backlog = read_backlog(rows)
        self.num_waiting = sum(each.num_samples for each in rows.waiting())
        return self.backlog

    def to_json(self) -> dict[str, Json]:
        """`waiting` samples are left; `interrupted`: the step in hand is taken again next time."""
        return {
            "steps": [view.to_json() for view in self.views],
            "waiting": self.num_waiting,
            "learning": None if self.backlog is None else self.backlog.to_json(),
            "imported": None if self.imported is None else self.imported.to_json(),
            "interrupted": self.is_interrupted,
        }


def outcome_text(outcome: TrainOutcome) -> Group:
    """A row for each step, and what is to be done next."""
    parts: list[Table | Text] = []
    if outcome.imported is not None:
        parts.append(Text(imported_line(outcome.imported), "dim"))
    if outcome.views:
        parts.append(_table(outcome.views))
    notes: list[str] = []
    if any(step.state == "candidate" for step in outcome.views):
        notes.append("Candidates answer nobody yet: the next `openclaw-rl up` tries the last of them at its gate.")
    if num := outcome.num_waiting:
        notes.append(f"{num} sample{'' if num == 1 else 's'} wait for a later step.")
    if outcome.is_interrupted:
        notes.append("Interrupted. Nothing is lost: a step that was begun is taken again next time.")
    told = None if outcome.backlog is None else backlog_text(outcome.backlog)
    return Group(*parts, *map(Text, notes), *([told] if told else []))


def imported_line(imported: Imported) -> str:
    """In one sentence."""
    parts = [f"{imported.new} of {imported.read} turns are new"]
    if imported.not_exact:
        parts.append(f"{imported.not_exact} came without exact ids and are only kept (not_exact)")
    if imported.refused:
        parts.append(f"{imported.refused} were left out: another turn has their name, or their session opted out")
    return "; ".join(parts) + "."


def rollouts_text(sessions: Mapping[str, Sequence[Rollout]]) -> Text:
    """What an import would read."""
    turns = [rollout for each in sessions.values() for rollout in each]
    num_exact = sum(rollout.is_exact for rollout in turns)
    told = f"{len(turns)} turns of {len(sessions)} sessions would be read, {num_exact} of them with exact ids; "
    return Text(told + "what is new among them is judged first, and is not in the batch below.\n", "dim")


def next_steps_text(found: Sequence[NextStep], *, max_staleness: int | None) -> Group:
    """A table for each step."""
    parts: list[Table | Text] = []
    for each in found:
        step = each.step
        begun = ", begun before" if each.is_planned else ""
        parent = version_label(step.line, step.parent)
        parts.append(Text(f"Step {step.number} of {step.line}, from {parent}{begun}", "bold"))
        parts.append(_next_table(each))
        own = ((step.num_anchors, "anchor"), (each.num_exercises, "exercise"))
        notes = [f"{num} {name}{'' if num == 1 else 's'} besides" for num, name in own if num]
        if each.stale:
            limit = f"more than training.max_staleness={max_staleness} versions old"
            notes.append(f"{len(each.stale)} skipped as stale ({limit}): {', '.join(each.stale)}")
        if each.num_later:
            notes.append(f"{each.num_later} wait for a later step")
        parts.append(Text("; ".join(notes) + "\n" if notes else "", "dim"))
    return Group(*parts, Text("Nothing was trained or written.", "dim"))


def _table(steps: Sequence[StepView]) -> Table:
    table = plain_table("step", "user", "samples", "loss", "reward", "version", "state")
    for view in steps:
        step = view.step
        loss, reward = step.metrics.get("loss/total"), step.metrics.get("reward/mean")
        words = (
            *(str(step.number), step.line, str(len(step.sample_ids))),
            *("" if loss is None else f"{loss:+.3f}", "" if reward is None else signed(reward)),
            "" if step.state == "discarded" else version_label(step.line, step.number),
            f"{view.state}: {step.reason}" if step.reason else view.state,
        )
        table.add_row(*(Text(one_line(word, 80)) for word in words), style="yellow" if step.reason else "")
    return table


def _next_table(each: NextStep) -> Table:
    numbers = ("reward", "RL+OPD", "hints", "tokens")
    table = plain_table("sample", "kind", *numbers, "sampled by", "", right=numbers)
    for samples, remark in ((each.new, ""), (each.replayed, "replayed")):
        for sample in samples:
            table.add_row(
                Text(sample.id),
                sample.kind,
                signed(sample.reward),
                f"{sample.w_rl:g}+{sample.w_opd:g}",
                str(len(sample.candidates)),
                f"{sum(sample.loss_mask)} of {len(sample.response_ids)}",
                Text(", ".join(dict.fromkeys(span.version for span in sample.version_spans))),
                Text(remark, "dim"),
            )
    return table
