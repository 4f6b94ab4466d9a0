"""The commands that judge, train, measure, collect, export and take back, and their options."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from openclaw_rl.cli.options import AsJson, Key, Loaded, OnlyUser, Yes, arg, command, opt
from openclaw_rl.errors import ConfigError

room = typer.Typer()
rollouts = typer.Typer(
    help="Recorded conversations: write them to files, and see what would be trained.", no_args_is_help=True
)
room.add_typer(rollouts, name="rollouts")


@command(room, flags=("--judge",))
def judge(
    loaded: Loaded,
    turn: Annotated[str | None, arg("TURN", "A stored turn such as s-5f1c.2: judge it again.")] = None,
    replay: Annotated[bool, opt("--replay", "Judge all judged turns again, and compare.")] = False,
    file: Annotated[Path | None, opt("--file FILE", "Judge lines {request, reply, next}; - is standard input.")] = None,
    session: Annotated[str | None, opt("--session SESSION", "Replay: only this one.")] = None,
    user: Annotated[str | None, opt("--user USER", "Replay: only this user's.")] = None,
    since: Annotated[str | None, opt("--since TIME", "Replay: judged since then: 30min, 2h, 3d or a date.")] = None,
    limit: Annotated[int | None, opt("--limit N", "Replay: the N judged last.", min=1)] = None,
    as_json: AsJson = False,
) -> None:
    """Ask a judge about stored turns or examples of your own. Nothing is stored.

    `judge TURN` shows score, votes with their raw text, and hints. `judge --replay --judge NAME` judges again what is
    judged and shows how far both agree. `judge --file pairs.jsonl --json` reads lines
    `{"request": "…", "reply": "…", "next": [{"role": "user", "content": "…"}]}` and writes one verdict for each; its
    exit status is 1 if a line could not be read.
    """
    if [turn is not None, replay, file is not None].count(True) != 1:
        raise ConfigError("name one of: a TURN such as s-5f1c.2, --replay, or --file FILE")
    if not replay and [session, user, since, limit] != [None] * 4:
        raise ConfigError("--session, --user, --since and --limit choose what --replay judges")
    if file is not None:
        from openclaw_rl.cli.learn.judging_lines import judge_file

        raise typer.Exit(judge_file(loaded.config, file, as_json=as_json))
    from openclaw_rl.cli.learn import judging

    if turn is not None:
        judging.judge_turn(loaded.config, turn, as_json=as_json)
    else:
        judging.replay(loaded.config, session=session, user=user, since=since, limit=limit, as_json=as_json)


@command(room, flags=("--checkpoint-dir", "--method", "--gpus", "--num-epochs", "--model"))
def train(
    loaded: Loaded,
    once: Annotated[
        bool, opt("--once", "One step; or, of a running server, all that it has samples for, now.")
    ] = False,
    dry_run: Annotated[bool, opt("--dry-run", "Show the next batch; train and write nothing.")] = False,
    rollout_dir: Annotated[
        Path | None, opt("--rollout-dir DIR", "First read what `rollouts collect` wrote there.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Train on what was collected, without serving.

    Judges what waits for the judge, takes every step that there are samples for, and ends. Each step builds on the one
    before it; the next `openclaw-rl up` puts the last through its gate. Beside a running server, which trains by
    itself, only `--once` does something: the server takes what waits now. Ctrl-C loses nothing; the exit status is 130
    then, and 1 if nothing waits.
    """
    from openclaw_rl.cli.learn.training import run_train

    raise typer.Exit(run_train(loaded, rollout_dir=rollout_dir, once=once, dry_run=dry_run, as_json=as_json))


@command(room, "eval")
def evaluate(
    loaded: Loaded,
    version: Annotated[
        int | None, opt("--version N", "The version.", min=0, show_default="the one that answers")
    ] = None,
    compare: Annotated[int, opt("--compare M", "The one beside it; 0 is the base model.", min=0)] = 0,
    user: Annotated[str, opt("--user USER", "Whose versions.")] = "local",
    preference: Annotated[
        str, opt("--preference NAME", "brief, plain, friendly, steps, or module:Class: who rates.")
    ] = "brief",
    num_questions: Annotated[int, opt("--num-questions N", "How many held-out questions.", min=2, max=48)] = 24,
    num_items: Annotated[
        int | None, opt("--num-items N", "How many capability items.", min=0, show_default="all")
    ] = None,
    seed: Annotated[int, opt("--seed N", "Of the answers.", min=0)] = 0,
    plot: Annotated[Path | None, opt("--plot FILE", "Also draw it, as a PNG.")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure a version beside another: preference, capability, and what else changed.

    Held-out questions and capability items are asked of the running server, behind everything that people ask it.
    Every change has its 95 % interval.
    """
    from openclaw_rl.cli.learn.evaluating import compare_versions, exam_for, show_comparison
    from openclaw_rl.cli.learn.plot import check_plot
    from openclaw_rl.evaluation.users import load_user

    rater = load_user(preference, seed=seed)
    if plot is not None:
        check_plot(plot)
    exam = exam_for(rater, num_questions=num_questions, num_items=num_items, seed=seed)
    found = compare_versions(loaded.config.store, user, (compare, version), exam, show=not as_json)
    show_comparison(rater, *found, seed=seed, plot=plot, as_json=as_json)


@command(room)
def undo(
    loaded: Loaded,
    turn: Annotated[str, arg("TURN", "A turn such as s-5f1c.2.")],
    as_json: AsJson = False,
) -> None:
    """Take back what a turn taught.

    The last version before that lesson answers at once, and nobody learns from the turn again. Everything else that
    later versions had learned is learned again in the background; `openclaw-rl versions` shows how far that is.
    """
    from openclaw_rl.cli.learn import undoing

    undoing.undo(loaded.config, turn, as_json=as_json)


@command(room)
def accept(
    loaded: Loaded,
    turn: Annotated[str, arg("TURN", "A turn such as s-5f1c.2.")],
    as_json: AsJson = False,
) -> None:
    """Agree with the verdict on a turn: it is learned from, also where the judge was not sure."""
    from openclaw_rl.cli.learn import deciding

    deciding.accept(loaded.config, turn, as_json=as_json)


@command(room)
def reject(
    loaded: Loaded,
    turn: Annotated[str, arg("TURN", "A turn such as s-5f1c.2.")],
    as_json: AsJson = False,
) -> None:
    """Say that a turn is no lesson: nobody learns from it, and what was learned is taken back."""
    from openclaw_rl.cli.learn import deciding

    deciding.reject(loaded.config, turn, as_json=as_json)


@command(room)
def hint(
    loaded: Loaded,
    turn: Annotated[str, arg("TURN", "A turn such as s-5f1c.2.")],
    words: Annotated[str, arg("HINT", "What the answer should have minded, in a sentence of your own.")],
    as_json: AsJson = False,
) -> None:
    """Put your own sentence in place of the hint that the judge found; it is judged and credited again."""
    from openclaw_rl.cli.learn import deciding

    deciding.give_hint(loaded.config, turn, words, as_json=as_json)


@command(room)
def forget(
    loaded: Loaded,
    name: Annotated[str, arg("SESSION|USER", "A session, or a user's whole name.")],
    is_user: Annotated[bool, opt("--user", "It is a user, should a session have the same name.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete a conversation, or all of a user's, and everything that was learned from it.

    The last version before its first lesson answers at once; what was learned from others meanwhile is learned again.
    Deleted for good: turns, judgements, samples, records, and the files of every version that learned from it.
    """
    from openclaw_rl.cli.learn import undoing

    def confirm(what: str) -> None:
        if not yes and sys.stdin.isatty():
            typer.confirm(f"Delete {what}, and everything that was learned from it, for good?", abort=True, err=True)

    undoing.forget(loaded.config, name, is_user=is_user, confirm=confirm, as_json=as_json)


@command(room)
def export(
    loaded: Loaded,
    version: Annotated[str, arg("VERSION", "A version such as v3 or v3.ann.")],
    folder: Annotated[Path, arg("DIR", "A new folder.")],
    user: Annotated[str | None, opt("--user USER", "Whose version.")] = None,
) -> None:
    """Write a version as a plain PEFT folder with a model card. No conversation goes along."""
    from openclaw_rl.cli.learn import undoing

    undoing.export(loaded.config, version, folder, user=user)


@command(room, "import")
def import_adapter(
    loaded: Loaded,
    folder: Annotated[Path, arg("DIR", "A PEFT folder with a LoRA adapter.")],
    user: Annotated[str, opt("--user USER", "Who is to be answered by it.")] = "local",
    as_json: AsJson = False,
) -> None:
    """Bring an adapter in as a new version.

    It answers once its gate finds nothing against it, and training goes on from it.
    """
    from openclaw_rl.cli.learn import undoing

    undoing.take_in(loaded.config, folder, user=user, as_json=as_json)


@command(rollouts, "test")
def rehearse_rollouts(
    loaded: Loaded,
    num_samples: Annotated[int, opt("--num-samples N", "How many to show.", min=1)] = 10,
    output_dir: Annotated[Path | None, opt("--output-dir DIR", "Also write them there, as JSON and as text.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what would be trained next, and why other turns would not.

    Samples that wait, the oldest first; which of them the next batch holds; and the reasons of all turns that are not
    learned from. Trains nothing.
    """
    from openclaw_rl.cli.learn.rehearsal import run_rehearsal

    run_rehearsal(loaded.config, num_samples=num_samples, folder=output_dir, as_json=as_json)


@command(rollouts, "collect")
def collect_rollouts(
    loaded: Loaded,
    output_dir: Annotated[Path, opt("--output-dir DIR", "Where the files go.")],
    api_endpoint: Annotated[
        str | None, opt("--api-endpoint URL", "The server, http://HOST:PORT; else the one running here.")
    ] = None,
    session_aware: Annotated[
        bool, opt("--session-aware", "A file for each session, instead of one rollouts.jsonl.")
    ] = False,
    key: Key = None,
) -> None:
    """Write your conversations to JSON lines while they happen, also those of a server elsewhere.

    A line for each turn, once it is known what followed it or that nothing will. Ctrl-C ends it and writes the turns
    that nothing has followed yet; started again it goes on from there, and writes nothing twice. What was kept private
    is not written.
    """
    from openclaw_rl.cli.address import find_server
    from openclaw_rl.cli.learn.collecting import run_collect

    url, secret = find_server(loaded.config, url=api_endpoint, key=key, flag="--api-endpoint")
    run_collect(url, secret, output_dir, session_aware=session_aware)


@command(rollouts, "export")
def export_rollouts(
    loaded: Loaded,
    folder: Annotated[Path, arg("DIR", "A new folder.")],
    form: Annotated[str, opt("--format NAME", "atif, or training-trace.")] = "atif",
    session: Annotated[str | None, opt("--session SESSION", "Only this one.")] = None,
    user: OnlyUser = None,
    as_json: AsJson = False,
) -> None:
    """Write stored conversations as trajectories that other programs read.

    `atif`: the Agent Trajectory Interchange Format 1.8; `training-trace`: that of OpenEnv, only turns with exact ids.
    What was kept private is not written, nor whose a conversation is.
    """
    from openclaw_rl.cli.learn.carrying import run_export

    run_export(loaded.config, folder, form=form, session=session, user=user, as_json=as_json)


@command(rollouts, "import")
def import_rollouts(
    loaded: Loaded,
    path: Annotated[Path, arg("PATH", "A file, or a folder of them.")],
    as_json: AsJson = False,
) -> None:
    """Read conversations that were recorded elsewhere: what `rollouts collect` wrote, ATIF, or training traces.

    They are yours from then on, whatever a file says, and are judged anew. What is known is not read twice. Answers
    without exact ids, or of a version that nobody names, stay conversations and are not learned from.
    """
    from openclaw_rl.cli.learn.carrying import run_import

    run_import(loaded.config, path, as_json=as_json)
