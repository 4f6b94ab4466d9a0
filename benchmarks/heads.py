"""How well the heads hear people whom nobody learned from: leave one writer out, and the shipped check set.

    python benchmarks/heads.py [--model NAME] [--states FILE] [--json]

Reads every labelled reaction once through the engine (four minutes on two cores; `--states` keeps the states in a file
and uses them again), fits the heads without each writer in turn, and judges that writer's reactions by them: by the
heads alone, and by the whole judge, with what would be learned of each. Prints tables.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for its neighbours, when it is run as a script

from openclaw_rl.config import load_config
from openclaw_rl.engine.registry import make_host
from openclaw_rl.judge.compose import Composed
from openclaw_rl.judge.heads import HeadsJudge, RulesJudge
from openclaw_rl.judge.heads.check import OF_HEADS
from openclaw_rl.judge.heads.examples import CHECK, EXAMPLES, Example, Said, load
from openclaw_rl.judge.heads.fit import read_states
from openclaw_rl.judge.heads.model import GramHeads, Heads, HiddenHeads, Opinion
from openclaw_rl.judge.heads.regression import Floats
from openclaw_rl.judge.heads.states import States, middle_layer
from openclaw_rl.judge.rules import form_part
from openclaw_rl.model.files import resolve_model
from openclaw_rl.protocols import HiddenReader, Judge
from openclaw_rl.render import load_renderer
from openclaw_rl.types import Verdict


@dataclass(frozen=True)
class Heard:
    """A reaction, what heads that never saw its writer make of it, and what the judges say."""

    example: Example
    opinion: Opinion
    by_heads: Verdict
    by_rules: Verdict


class Known(States):
    """States that were read before."""

    def __init__(self, hidden: dict[str, Floats]) -> None:
        self._hidden = hidden
        self._mean = np.mean(list(hidden.values()), axis=0)

    async def read(self, reactions: Sequence[Said]) -> Floats:
        # An earlier reaction of a conversation is no example of its own: it counts as one of which the model holds what
        # it holds of all, so that its n-grams decide.
        return np.array([self._hidden.get(one.prompt, self._mean) for one in reactions])


async def read_all(name: str | None, examples: Sequence[Example]) -> Floats:
    config = load_config(env={}, overrides=[] if name is None else [f"model.name={name}"]).config
    files = resolve_model(config.model)
    renderer = load_renderer(files.path, files.name, files.tokenizer_path)
    with tempfile.TemporaryDirectory(prefix="heads-") as folder:
        host = make_host(config.engine, files, Path(folder) / "engine.sock")
        running = asyncio.create_task(host.run())
        try:
            await host.wait_ready()
            assert isinstance(host.engine, HiddenReader)
            return await read_states(
                States(host.engine, renderer, layer=middle_layer(files.path), timeout_s=600.0), examples
            )
        finally:
            await host.stop()
            await running


async def hear(examples: Sequence[Example], hidden_NH: Floats) -> list[Heard]:
    """Every example, heard by heads that were fitted without its writer. Those of the check set are never fitted on."""
    fixed = {one.writer for one in load(CHECK)}
    known = Known({one.reaction.prompt: row for one, row in zip(examples, hidden_NH, strict=True)})
    heard: list[Heard] = []
    for writers in [fixed, *({writer} for writer in sorted({one.writer for one in examples} - fixed))]:
        there = np.array([one.writer not in writers | fixed for one in examples])
        fitted = [one for one, is_there in zip(examples, there, strict=True) if is_there]
        heads = Heads(GramHeads.fitted(fitted), HiddenHeads.fitted(fitted, hidden_NH[there], layer=1))
        judge, without = await _judge(heads, known), Composed([RulesJudge(grams=heads.grams)])
        for one in (one for one in examples if one.writer in writers):
            (opinion,) = heads.opinions([one.reaction], await known.read([one.reaction]))
            verdicts = [await judge.judge(one.evidence), await without.judge(one.evidence)]
            heard.append(Heard(one, opinion, *verdicts))
    return heard


async def _judge(heads: Heads, known: Known) -> Judge:
    async def prepare() -> tuple[Heads, States]:
        return heads, known

    judge = HeadsJudge(prepare)
    await judge.prepared()
    return Composed([judge])


def learned(verdict: Verdict) -> tuple[int, bool]:
    """The score that is learned, and whether a hint is."""
    if verdict.claims:
        return 0, bool(verdict.unclaimed_hints)
    return verdict.score or 0, bool(verdict.hints)


def told_rightly(one: Heard, verdict: Verdict) -> bool:
    """Whether what is learned has the sign of what was said: a wish also by its words alone."""
    score, hint = learned(verdict)
    return score == one.example.score or (one.example.score < 0 and hint and score <= 0)


def row(heard: Iterable[Heard], by: Callable[[Heard], Verdict]) -> dict[str, int]:
    """What is learned of some reactions."""
    heard = list(heard)
    clear = [one for one in heard if one.example.score and not one.example.matter]
    claims = [one for one in heard if one.example.matter]
    wished = [one for one in heard if one.example.hint and not one.example.matter]
    return {
        "clear": len(clear),
        "right": sum(told_rightly(one, by(one)) for one in clear),
        "wrong": sum(learned(by(one))[0] == -one.example.score for one in clear),
        "wishes": len(wished),
        "hints": sum(learned(by(one))[1] for one in wished),
        "claims": len(claims),
        "harm": sum(harms(by(one)) for one in claims),
        "claims praised": sum(learned(by(one))[0] > 0 for one in heard if one.example.kind == "dialogue"),
    }


def harms(verdict: Verdict) -> bool:
    """Whether something false punishes a right answer, or teaches more than the form."""
    hints = verdict.unclaimed_hints if verdict.claims else verdict.hints
    return learned(verdict)[0] < 0 or any(form_part(hint) != hint for hint in hints)


def head_row(heard: Iterable[Heard]) -> dict[str, float]:
    """The heads alone: accuracy of the likeliest score, flips, and the same where they are sure; hints and claims."""
    heard = list(heard)
    sure = [one for one in heard if one.opinion.sureness >= OF_HEADS.score]
    hinted = [one for one in heard if one.opinion.hint >= 0.5]
    wanted = [one for one in heard if one.example.hint]
    return {
        "n": len(heard),
        "accuracy": _share(one.opinion.score == one.example.score for one in heard),
        "flips": sum(one.opinion.score * one.example.score < 0 for one in heard),
        "sure": _share(one in sure for one in heard),
        "accuracy sure": _share(one.opinion.score == one.example.score for one in sure),
        "flips sure": sum(one.opinion.score * one.example.score < 0 for one in sure),
        "hint precision": _share(one.example.hint for one in hinted),
        "hint recall": _share(one.opinion.hint >= 0.5 for one in wanted),
    }


def _share(values: Iterable[bool]) -> float:
    found = list(values)
    return round(sum(found) / max(1, len(found)), 3)


def _print(title: str, rows: Mapping[str, Mapping[str, float]]) -> None:
    columns = list(next(iter(rows.values())))
    print(f"\n| {title} | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 1)}")
    for name, values in rows.items():
        print(f"| {name} | {' | '.join(str(values[column]) for column in columns)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description="How well the heads hear writers whom nobody learned from.")
    parser.add_argument("--model", default=None, help="another model than the embedded one")
    parser.add_argument("--states", type=Path, default=None, help="keep the hidden states here, and use them again")
    parser.add_argument("--json", action="store_true", help="also print all figures as one JSON object, last")
    arguments = parser.parse_args()
    examples = [*load(EXAMPLES), *load(CHECK)]
    if arguments.states is not None and arguments.states.exists():
        hidden_NH = np.load(arguments.states)
    else:
        hidden_NH = asyncio.run(read_all(arguments.model, examples))
        if arguments.states is not None:
            np.save(arguments.states, hidden_NH.astype(np.float32))
    heard = asyncio.run(hear(examples, hidden_NH.astype(np.float64)))
    groups: dict[str, list[Heard]] = {"all": heard}
    checked = {one.writer for one in load(CHECK)}
    groups["check set"] = [one for one in heard if one.example.writer in checked]
    for kind in ("form", "work", "advice", "praise", "push", "dialogue"):
        groups[kind] = [one for one in heard if one.example.kind == kind]
    for lang in sorted({one.example.lang for one in heard}):
        groups[f"language {lang}"] = [one for one in heard if one.example.lang == lang]
    tables: dict[str, Mapping[str, Mapping[str, float]]] = {
        "heads alone": {name: head_row(some) for name, some in groups.items()},
        "judge heads": {name: row(some, lambda one: one.by_heads) for name, some in groups.items()},
        "judge rules": {name: row(some, lambda one: one.by_rules) for name, some in groups.items()},
    }
    for title, rows in tables.items():
        _print(title, rows)
    if arguments.json:
        print(json.dumps(tables))


if __name__ == "__main__":
    main()
