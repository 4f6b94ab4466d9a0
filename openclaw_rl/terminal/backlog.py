"""How learning stands, for every command that looks: what waits for the judge, and whether it is believed."""

from __future__ import annotations

from dataclasses import dataclass

from rich.text import Text

from openclaw_rl.store import StoreReader
from openclaw_rl.terminal.screen import printable
from openclaw_rl.types import TRAINING_PAUSED, Json

PAUSED = "judge.paused"
"""The judge loop's flag. Its module would bring every judge along, and commands that only look start quickly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """`paused` is the reason why nothing is judged at the moment, `training_paused` why nothing is trained, if any."""

    paused: str | None
    num_unjudged: int
    num_uncredited: int
    training_paused: str | None = None

    @property
    def waiting(self) -> str:
        """In words; nothing if nothing waits."""
        counts = ((self.num_unjudged, "the judge"), (self.num_uncredited, "credit"))
        parts = [f"{count} for {what}" for count, what in counts if count]
        return f"Turns that wait: {', '.join(parts)}" if parts else ""

    def to_json(self) -> dict[str, Json]:
        return {
            "paused": self.paused,
            "training_paused": self.training_paused,
            "unjudged": self.num_unjudged,
            "uncredited": self.num_uncredited,
        }


def read_backlog(reader: StoreReader) -> Backlog:
    """As it is now."""
    return Backlog(
        paused=reader.flag(PAUSED),
        num_unjudged=reader.num_open("judge"),
        num_uncredited=reader.num_open("credit"),
        training_paused=reader.flag(TRAINING_PAUSED),
    )


def backlog_text(backlog: Backlog) -> Text:
    """A warning where learning is paused, a line where something waits, and nothing where all is done."""
    text = Text()
    if backlog.paused is not None:
        text.append(f"Learning is paused: {printable(backlog.paused)}\n", "bold yellow")
    if backlog.training_paused is not None:
        text.append(f"{training_note(backlog.training_paused)}\n", "bold yellow")
    if backlog.waiting:
        text.append(f"{backlog.waiting}\n", "dim")
    return text


def training_note(reason: str) -> str:
    """Why nothing is trained; it is tried again without anybody's help."""
    return f"Training is paused: {printable(reason)}. Nothing is lost; it is tried again by itself."
