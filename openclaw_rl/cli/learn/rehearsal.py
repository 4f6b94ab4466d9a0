"""`openclaw-rl rollouts test`: what the next steps would learn from, as a table and as files to read. Trains nothing.

For each waiting sample a JSON file with every number and a text file for people; and `summary.json`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import orjson
from rich.console import Group
from rich.table import Table
from rich.text import Text

from openclaw_rl.cli.inspect.text import backlog_text, reward_style
from openclaw_rl.cli.learn.rollout_files import RolloutError, file_name
from openclaw_rl.cli.screen import make_console, one_line, plain_table, print_json
from openclaw_rl.config import Config
from openclaw_rl.types import Skip, turn_id
from openclaw_rl.views.lessons import sample_json, signed
from openclaw_rl.views.rows import open_rows
from openclaw_rl.views.tokens import TokenTexts
from openclaw_rl.views.upcoming import Rehearsal, WaitingSample, rehearse

_SUMMARY = "summary.json"
_FIGURES = 58
"""Columns that a row of the table takes beside the name and the words of its sample."""
_LEAST_RESPONSE = 16


def run_rehearsal(config: Config, *, num_samples: int, folder: Path | None, as_json: bool) -> None:
    """Show what waits, and write it to `folder`."""
    rehearsal = rehearse(open_rows(config.store), config.training, num_samples=num_samples)
    tokens = TokenTexts.find(config.model)
    if folder is not None:
        write_files(folder, rehearsal, tokens)
    if as_json:
        print_json({**rehearsal.to_json(), "samples": [sample_json(each.sample) for each in rehearsal.waiting]})
        return
    console = make_console()
    console.print(rehearsal_text(rehearsal, tokens, width=console.width))
    if folder is not None:
        console.print(f"\nWritten to {folder}: a .json and a .txt for each sample, and {_SUMMARY}.", markup=False)


def rehearsal_text(rehearsal: Rehearsal, tokens: TokenTexts, *, width: int) -> Group:
    """The samples as a table, why other turns are not among them, and what is still to be judged."""
    parts: list[Table | Text] = []
    if rehearsal.waiting:
        parts += [_samples_table(rehearsal.waiting, tokens, width=width), _batch_line(rehearsal)]
    else:
        parts.append(Text("Nothing waits to be trained on."))
    if rehearsal.skips:
        parts += [Text("\nNot learned from", "bold"), _skips_table(rehearsal.skips)]
    note = backlog_text(rehearsal.backlog)
    return Group(*parts, *([Text(), Text(note.plain.rstrip(), "yellow")] if note else []))


def write_files(folder: Path, rehearsal: Rehearsal, tokens: TokenTexts) -> None:
    """Files for each sample; those of an earlier run go."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove_earlier(folder)
        names: list[str] = []
        for number, each in enumerate(rehearsal.waiting, start=1):
            stem = f"{number:03d}-{file_name(each.sample.id).removesuffix('.jsonl')}"
            raw = {**sample_json(each.sample), "in_next_batch": each.is_next}
            _write(folder / f"{stem}.json", orjson.dumps(raw, option=orjson.OPT_INDENT_2) + b"\n")
            _write(folder / f"{stem}.txt", sample_text(each, tokens).encode("utf-8", "replace"))
            names += [f"{stem}.json", f"{stem}.txt"]
        summary = {**rehearsal.to_json(), "files": names}
        _write(folder / _SUMMARY, orjson.dumps(summary, option=orjson.OPT_INDENT_2) + b"\n")
    except OSError as error:
        raise RolloutError(f"{folder} cannot be written ({error.strerror}); choose another --output-dir") from error


def sample_text(waiting: WaitingSample, tokens: TokenTexts) -> str:
    """A sample to be read: its prompt, its response token by token with what is done to each, and the hints."""
    sample, model = waiting.sample, waiting.turn.model

    def decode(token_ids: Sequence[int]) -> str:
        return "".join(tokens.texts(token_ids, model))

    weights = f"weights  {sample.w_rl:g} RL + {sample.w_opd:g} OPD"
    lines = [
        f"{sample.id}  {sample.kind} of {waiting.user}, line {sample.line}",
        f"reward {signed(sample.reward)}  {weights}  {'on' if sample.on_policy else 'off'}-policy",
        f"answers turn {turn_id(sample.session, sample.prompt_index)}",
        *(f"hint {number}: {each.hint}" for number, each in enumerate(sample.candidates, start=1)),
        f"\n--- prompt, {len(sample.prompt_ids)} tokens\n{decode(sample.prompt_ids)}",
        f"\n--- response, {len(sample.response_ids)} tokens\n{decode(sample.response_ids)}",
    ]
    for number, candidate in enumerate(sample.candidates, start=1):
        shared = f"{candidate.num_shared} tokens as in the prompt, then"
        lines.append(f"\n--- teacher's prompt with hint {number}: {shared}\n{decode(candidate.suffix_ids)}")
    lines.append("\n--- mask: what is done to each token of the response (· is not trained)")
    texts = tokens.texts(sample.response_ids, model)
    for text, token, advantage, learned in zip(
        texts, sample.response_ids, sample.advantages, sample.loss_mask, strict=True
    ):
        lines.append(f"{signed(advantage) if learned else '·':>6}  {token:>7}  {text!r}")
    return "\n".join(lines) + "\n"


def _samples_table(waiting: Sequence[WaitingSample], tokens: TokenTexts, *, width: int) -> Table:
    table = plain_table()
    table.add_column("sample", overflow="fold")
    for title in ("reward", "advantage", "RL+OPD", "hints", "tokens"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("batch", no_wrap=True)
    room = width - max(len(each.sample.id) for each in waiting) - _FIGURES
    if room >= _LEAST_RESPONSE:
        table.add_column("response", no_wrap=True)
    for each in waiting:
        sample = each.sample
        trained = [a for a, learned in zip(sample.advantages, sample.loss_mask, strict=True) if learned]
        response = each.turn.message.content or "".join(tokens.texts(sample.response_ids, each.turn.model))
        table.add_row(
            Text(sample.id),
            Text(signed(sample.reward), reward_style(sample.reward)),
            signed(max(trained, key=abs, default=0.0)),
            f"{sample.w_rl:g}+{sample.w_opd:g}",
            str(len(sample.candidates)),
            f"{len(trained)} of {len(sample.response_ids)}",
            Text("next", "green") if each.is_next else Text("later", "dim"),
            *([Text(one_line(response, room), "dim")] if room >= _LEAST_RESPONSE else []),
        )
    return table


def _batch_line(rehearsal: Rehearsal) -> Text:
    num_next = sum(each.is_next for each in rehearsal.waiting)
    return Text(f"\n{num_next} of these {len(rehearsal.waiting)} in the next batch of {rehearsal.batch_size}.", "dim")


def _skips_table(skips: dict[Skip, int]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(justify="right")
    for skip, count in skips.items():
        table.add_row(str(count), Text(skip.value, "yellow"))
    return table


def _remove_earlier(folder: Path) -> None:
    try:
        earlier = orjson.loads((folder / _SUMMARY).read_bytes())["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    for name in earlier:
        (folder / Path(str(name)).name).unlink(missing_ok=True)


def _write(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)
