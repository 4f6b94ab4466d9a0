"""`openclaw-rl`: the commands and their options. Wiring only; what a command does is in `pipeline.py` and `terminal/`.

Everything heavy is imported inside the command that needs it, so `--help` is quick. Exit status: 0 done, 1 failed,
2 used wrongly; errors are one line on standard error and never a traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import metadata
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from openclaw_rl.errors import ConfigError, OpenClawError
from openclaw_rl.terminal.options import AsJson, ConfigFiles, DataDir, Overrides, load
from openclaw_rl.terminal.screen import complain

if TYPE_CHECKING:
    from openclaw_rl.config import LoadedConfig

app = typer.Typer(
    help="An agent that gets better because people talk to it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
keys_app = typer.Typer(
    help="Who may call the gateway: list, add and revoke API keys.", no_args_is_help=True, rich_markup_mode="markdown"
)
app.add_typer(keys_app, name="keys")
rollouts_app = typer.Typer(
    help="Recorded conversations: write them to files, and see what would be trained.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
app.add_typer(rollouts_app, name="rollouts")

Host = Annotated[
    str | None, typer.Option("--host", metavar="HOST", help="Address to listen on.", show_default="127.0.0.1")
]
Port = Annotated[
    int | None,
    typer.Option("--port", metavar="PORT", help="Port to listen on; 0 takes any free one.", show_default="30000"),
]
Model = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME", help="The embedded model's name, a Hugging Face folder, or a hub name."),
]
Engine = Annotated[
    str | None, typer.Option("--engine", metavar="NAME", help="Which engine samples: embedded, scripted, …")
]
Method = Annotated[str | None, typer.Option("--method", metavar="NAME", help="How it learns (training.method).")]
Backend = Annotated[str | None, typer.Option("--backend", metavar="NAME", help="Where it learns (training.backend).")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Answer with the scripted engine: everything but a model.")]
Url = Annotated[str | None, typer.Option("--url", metavar="URL", help="Another server's address, http://HOST:PORT.")]
Key = Annotated[
    str | None, typer.Option("--key", metavar="KEY", help="Its API key.", show_default="the one in DIR/key")
]
SessionName = Annotated[
    str, typer.Argument(metavar="SESSION", help="A session, the start of its name, or a turn such as s-5f1c.2.")
]


def _show_version(asked: bool) -> None:
    if asked:
        print(f"openclaw-rl {metadata.version('openclaw-rl')}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def up(
    data_dir: DataDir = None,
    config: ConfigFiles = None,
    host: Host = None,
    port: Port = None,
    model: Model = None,
    engine: Engine = None,
    method: Method = None,
    backend: Backend = None,
    dry_run: DryRun = False,
    overrides: Overrides = None,
) -> None:
    """Start everything: gateway, engine, and what learns from reactions.

    What people say next is judged and becomes training samples, in the background. The first start fetches the model.
    Ctrl-C lets running answers finish and leaves nothing running.
    """
    flags = {"--host": host, "--port": port, "--model": model, "--method": method, "--backend": backend}
    flags |= {"--engine": "scripted" if dry_run else engine}
    _serve(load(data_dir, config, overrides, flags), learn=True)


@app.command()
def serve(
    data_dir: DataDir = None,
    config: ConfigFiles = None,
    host: Host = None,
    port: Port = None,
    model: Model = None,
    engine: Engine = None,
    dry_run: DryRun = False,
    overrides: Overrides = None,
) -> None:
    """Serve without learning: gateway and engine only.

    Every turn and reaction is recorded as with `up`, and nothing is judged; the next `up` takes it up.
    """
    flags = {"--host": host, "--port": port, "--model": model, "--engine": "scripted" if dry_run else engine}
    _serve(load(data_dir, config, overrides, flags), learn=False)


@app.command()
def chat(
    url: Url = None,
    key: Key = None,
    data_dir: DataDir = None,
    config: ConfigFiles = None,
    overrides: Overrides = None,
) -> None:
    """Chat with the running model in the terminal.

    `/new` starts over, `/good` and `/bad TEXT` say what the last answer was like, `/help` lists the rest. Through a
    pipe every line is a message, and standard output gets the answers alone.
    """
    settings = load(data_dir, config, overrides).config
    from openclaw_rl.terminal.address import find_server
    from openclaw_rl.terminal.chat import run_chat

    found, secret = find_server(settings, url=url, key=key)
    raise typer.Exit(run_chat(found, secret, data_dir=settings.store.data_dir))


@app.command()
def connect(
    client: Annotated[
        str,
        typer.Argument(
            metavar="CLIENT", help="openclaw, codex, claude-code, opencode, pi, aider, litellm, or env for any other."
        ),
    ],
    remove: Annotated[bool, typer.Option("--remove", help="Undo it: settings as they were, the key revoked.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    only_print: Annotated[bool, typer.Option("--print", help="Change nothing: print what is to be set.")] = False,
    try_client: Annotated[bool, typer.Option("--try", help="Ask the client itself a question afterwards.")] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: ConfigFiles = None,
    overrides: Overrides = None,
) -> None:
    """Let an agent that you have use the running server, and learn.

    Shows what will change and asks, makes a key, changes the client's settings, and sees that a first turn arrives as
    one to learn from. `--remove` puts everything back.
    """
    settings = load(data_dir, config, overrides).config
    from openclaw_rl.terminal import connect as connecting

    def confirm(question: str) -> None:
        if not yes:
            typer.confirm(question, abort=True, err=True)

    if remove:
        connecting.disconnect(settings, client, as_json=as_json, confirm=confirm)
        return
    raise typer.Exit(
        connecting.connect(
            settings, client, only_print=only_print, try_client=try_client, as_json=as_json, confirm=confirm
        )
    )


@app.command()
def sessions(
    user: Annotated[str | None, typer.Option("--user", metavar="USER", help="Only this user's.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Only the N seen last.", metavar="N")] = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: ConfigFiles = None,
    overrides: Overrides = None,
) -> None:
    """List the conversations that are stored, the one seen last first."""
    store = load(data_dir, config, overrides).config.store
    from openclaw_rl.terminal.listing import show_sessions

    show_sessions(store.data_dir, store.url, user=user, limit=limit, as_json=as_json)


@app.command()
def inspect(
    session: SessionName,
    turn: Annotated[int | None, typer.Option("--turn", min=0, metavar="N", help="Only turn N, uncut.")] = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: ConfigFiles = None,
    overrides: Overrides = None,
) -> None:
    """Show the turns of a session, and what was learned from them.

    What was asked, answered and said next; the judge's score, votes and hints; and the sample, its tokens green where
    they become more likely, red where less, blue where only a hint moves them, or the reason why there is none. With
    `--json` also every token id and log-prob, exactly as sampled.
    """
    settings = load(data_dir, config, overrides).config
    from openclaw_rl.terminal.inspection import show_session

    show_session(settings, session, index=turn, as_json=as_json)


@app.command()
def judge(
    turn: Annotated[
        str | None, typer.Argument(metavar="TURN", help="A stored turn such as s-5f1c.2: judge it again.")
    ] = None,
    replay: Annotated[bool, typer.Option("--replay", help="Judge all judged turns again, and compare.")] = False,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="Judge lines {request, reply, next}; - is standard input."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--judge", metavar="NAME", help="rules, endpoint, self, model, function, or a chain: rules,self."),
    ] = None,
    session: Annotated[str | None, typer.Option("--session", metavar="SESSION", help="Replay: only this one.")] = None,
    user: Annotated[str | None, typer.Option("--user", metavar="USER", help="Replay: only this user's.")] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Replay: judged since then: 30min, 2h, 3d or a date.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, metavar="N", help="Replay: the N judged last.")] = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: ConfigFiles = None,
    overrides: Overrides = None,
) -> None:
    """Ask a judge about stored turns or examples of your own. Nothing is stored.

    `judge TURN` shows score, votes with their raw text, and hints. `judge --replay --judge NAME` judges again what is
    judged and shows how far both agree. `judge --file pairs.jsonl --json` reads lines
    `{"request": "…", "reply": "…", "next": [{"role": "user", "content": "…"}]}` and writes one verdict for each; its
    exit status is 1 if a line could not be read.
    """
    given = list(overrides or ())
    if turn is not None and "=" in turn:  # a setting where a turn may stand
        given, turn = [turn, *given], None
    if [turn is not None, replay, file is not None].count(True) != 1:
        raise ConfigError("name one of: a TURN such as s-5f1c.2, --replay, or --file FILE")
    if not replay and [session, user, since, limit] != [None] * 4:
        raise ConfigError("--session, --user, --since and --limit choose what --replay judges")
    if name is not None:
        given = [f"evaluation.judge={name}", *given]
    settings = load(data_dir, config, given).config
    if file is not None:
        from openclaw_rl.terminal.judging_lines import judge_file

        raise typer.Exit(judge_file(settings, file, as_json=as_json))
    from openclaw_rl.terminal import judging

    if turn is not None:
        judging.judge_turn(settings, turn, as_json=as_json)
    else:
        judging.replay(settings, session=session, user=user, since=since, limit=limit, as_json=as_json)


@app.command()
def train(
    once: Annotated[
        bool, typer.Option("--once", help="One step; or, of a running server, all that it has samples for, now.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the next batch; train and write nothing.")] = False,
    rollout_dir: Annotated[
        Path | None,
        typer.Option("--rollout-dir", metavar="DIR", help="First read what `rollouts collect` wrote there."),
    ] = None,
    checkpoint_dir: Annotated[
        Path | None,
        typer.Option(
            "--checkpoint-dir",
            metavar="DIR",
            help="Where versions go (training.save_path).",
            show_default="DIR/versions",
        ),
    ] = None,
    method: Method = None,
    gpus: Annotated[
        str | None, typer.Option("--gpus", metavar="LIST", help="The GPU that trains, by number (training.gpu_ids).")
    ] = None,
    num_epochs: Annotated[
        int | None,
        typer.Option(
            "--num-epochs", min=1, metavar="N", help="How often each batch is gone through.", show_default="1"
        ),
    ] = None,
    model: Model = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: ConfigFiles = None,
    overrides: Overrides = None,
) -> None:
    """Train on what was collected, without serving.

    Judges what waits for the judge, takes every step that there are samples for, and ends. Each step builds on the one
    before it; the next `openclaw-rl up` puts the last through its gate. Beside a running server, which trains by
    itself, only `--once` does something: the server takes what waits now. Ctrl-C loses nothing; the exit status is 130
    then, and 1 if nothing waits.
    """
    flags = {"--checkpoint-dir": checkpoint_dir, "--method": method, "--gpus": gpus, "--num-epochs": num_epochs}
    loaded = load(data_dir, config, overrides, {**flags, "--model": model})
    from openclaw_rl.terminal.training import run_train

    raise typer.Exit(run_train(loaded, rollout_dir=rollout_dir, once=once, dry_run=dry_run, as_json=as_json))


@app.command()
def versions(
    number: Annotated[
        str | None, typer.Argument(metavar="N", help="Only this one, with all that its gate measured.")
    ] = None,
    user: Annotated[str | None, typer.Option("--user", metavar="USER", help="Only this user's.")] = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: ConfigFiles = None,
    overrides: Overrides = None,
) -> None:
    """List what was learned: every version, what it learned from, and which one answers."""
    if number is not None and "=" in number:
        overrides, number = [number, *(overrides or [])], None
    store = load(data_dir, config, overrides).config.store
    if number is None:
        from openclaw_rl.terminal.versions import show_versions

        show_versions(store, user=user, as_json=as_json)
        return
    from openclaw_rl.terminal.gate_text import show_version

    show_version(store, version_argument(number), user=user or "local", as_json=as_json)


def version_argument(text: str) -> int:
    """The number of a version, with or without its v."""
    if not (digits := text.removeprefix("v")).isdecimal():
        raise typer.BadParameter(f"{text!r} is no number of a version, such as 3", param_hint="N")
    return int(digits)


@app.command()
def rollback(
    number: Annotated[str, typer.Argument(metavar="N", help="The version to go back to; 0 is the base model.")],
    user: Annotated[str, typer.Option("--user", metavar="USER", help="Whose version.")] = "local",
    untried: Annotated[bool, typer.Option("--untried", help="Also one that never answered: no gate let it.")] = False,
    data_dir: DataDir = None,
    config: ConfigFiles = None,
    overrides: Overrides = None,
) -> None:
    """Let an earlier version answer again. Running answers end on theirs; no request is refused."""
    store = load(data_dir, config, overrides).config.store
    from openclaw_rl.terminal.versions import roll_back

    roll_back(store, version_argument(number), user=user, untried=untried)


@app.command()
def why(
    name: Annotated[
        str, typer.Argument(metavar="VERSION|TURN", help="A version such as v3 or v3.ann, or a turn such as s-5f1c.2.")
    ],
    user: Annotated[str | None, typer.Option("--user", metavar="USER", help="Whose version.")] = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: ConfigFiles = None,
    overrides: Overrides = None,
) -> None:
    """Show what a version learned from, or what became of a turn.

    For each lesson: what was said, the votes and hints, the tokens that moved most with their probabilities before and
    after, and the version with its gate's figures. Probabilities need a running server.
    """
    settings = load(data_dir, config, overrides).config
    from openclaw_rl.terminal.why import show_why

    show_why(settings, name, user=user, as_json=as_json)


@app.command()
def undo(
    turn: Annotated[str, typer.Argument(metavar="TURN", help="A turn such as s-5f1c.2.")],
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: ConfigFiles = None,
    overrides: Overrides = None,
) -> None:
    """Take back what a turn taught.

    The last version before that lesson answers at once, and nobody learns from the turn again. Everything else that
    later versions had learned is learned again in the background; `openclaw-rl versions` shows how far that is.
    """
    settings = load(data_dir, config, overrides).config
    from openclaw_rl.terminal import undoing

    undoing.undo(settings, turn, as_json=as_json)


@app.command()
def forget(
    name: Annotated[str, typer.Argument(metavar="SESSION|USER", help="A session, or a user's whole name.")],
    is_user: Annotated[bool, typer.Option("--user", help="It is a user, should a session have the same name.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: ConfigFiles = None,
    overrides: Overrides = None,
) -> None:
    """Delete a conversation, or all of a user's, and everything that was learned from it.

    The last version before its first lesson answers at once; what was learned from others meanwhile is learned again.
    Deleted for good: turns, judgements, samples, records, and the files of every version that learned from it.
    """
    settings = load(data_dir, config, overrides).config
    from openclaw_rl.terminal import undoing

    def confirm(what: str) -> None:
        if not yes and sys.stdin.isatty():
            typer.confirm(f"Delete {what}, and everything that was learned from it, for good?", abort=True, err=True)

    undoing.forget(settings, name, is_user=is_user, confirm=confirm, as_json=as_json)


@app.command()
def export(
    version: Annotated[str, typer.Argument(metavar="VERSION", help="A version such as v3 or v3.ann.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")],
    user: Annotated[str | None, typer.Option("--user", metavar="USER", help="Whose version.")] = None,
    data_dir: DataDir = None,
    config: ConfigFiles = None,
    overrides: Overrides = None,
) -> None:
    """Write a version as a plain PEFT folder with a model card. No conversation goes along."""
    settings = load(data_dir, config, overrides).config
    from openclaw_rl.terminal import undoing

    undoing.export(settings, version, folder, user=user)


@app.command("import")
def import_adapter(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A PEFT folder with a LoRA adapter.")],
    user: Annotated[str, typer.Option("--user", metavar="USER", help="Who is to be answered by it.")] = "local",
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: ConfigFiles = None,
    overrides: Overrides = None,
) -> None:
    """Bring an adapter in as a new version.

    It answers once its gate finds nothing against it, and training goes on from it.
    """
    settings = load(data_dir, config, overrides).config
    from openclaw_rl.terminal import undoing

    undoing.take_in(settings, folder, user=user, as_json=as_json)


@app.command()
def demo(
    user: Annotated[
        str, typer.Option("--user", metavar="NAME", help="brief, plain, friendly, steps, or module:Class of your own.")
    ] = "brief",
    turns: Annotated[
        int | None, typer.Option("--turns", min=1, metavar="N", help="How many questions are asked.", show_default="24")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option("--minutes", metavar="M", help="Instead of --turns: for how long, more than 0.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, metavar="N", help="Of questions, answers and words.")] = 0,
    num_questions: Annotated[
        int, typer.Option("--num-questions", min=1, max=48, metavar="N", help="Held-out questions to measure with.")
    ] = 12,
    max_tokens: Annotated[
        int,
        typer.Option(
            "--max-tokens", min=1, metavar="N", help="Longest answer; of one that is cut only the hint is learned."
        ),
    ] = 256,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="The PNG of the curve.", show_default="openclaw-rl-demo.png"),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the directory of a server that the demo starts.")] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: ConfigFiles = None,
    overrides: Overrides = None,
) -> None:
    """Watch it learn: a simulated user with a hidden preference talks to the model.

    Uses the running server, as a user of its own, or starts one. Shows conversations, verdicts, steps and versions as
    they happen, and what each version does with questions it never saw; ends with answers before and after, and a plot.
    Ctrl-C shows what there is so far.
    """
    loaded = load(data_dir, config, overrides)
    from openclaw_rl.terminal.demo import run_demo

    raise typer.Exit(
        run_demo(
            loaded,
            user=user,
            num_turns=turns,
            minutes=minutes,
            seed=seed,
            num_questions=num_questions,
            max_tokens=max_tokens,
            plot=plot,
            keep=keep,
            files=config or (),
            overrides=overrides or (),
            as_json=as_json,
        )
    )


@app.command("eval")
def evaluate(
    version: Annotated[
        int | None,
        typer.Option("--version", min=0, metavar="N", help="The version.", show_default="the one that answers"),
    ] = None,
    compare: Annotated[
        int, typer.Option("--compare", min=0, metavar="M", help="The one beside it; 0 is the base model.")
    ] = 0,
    user: Annotated[str, typer.Option("--user", metavar="USER", help="Whose versions.")] = "local",
    preference: Annotated[
        str,
        typer.Option("--preference", metavar="NAME", help="brief, plain, friendly, steps, or module:Class: who rates."),
    ] = "brief",
    num_questions: Annotated[
        int, typer.Option("--num-questions", min=2, max=48, metavar="N", help="How many held-out questions.")
    ] = 24,
    num_items: Annotated[
        int | None,
        typer.Option("--num-items", min=0, metavar="N", help="How many capability items.", show_default="all"),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, metavar="N", help="Of the answers.")] = 0,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Also draw it, as a PNG.")] = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: ConfigFiles = None,
    overrides: Overrides = None,
) -> None:
    """Measure a version beside another: preference, capability, and what else changed.

    Held-out questions and capability items are asked of the running server, behind everything that people ask it.
    Every change has its 95 % interval.
    """
    store = load(data_dir, config, overrides).config.store
    from openclaw_rl.terminal.evaluating import run_eval

    run_eval(
        store,
        line=user,
        number=version,
        compared_with=compare,
        preference=preference,
        num_questions=num_questions,
        num_items=num_items,
        seed=seed,
        plot=plot,
        as_json=as_json,
    )


@app.command()
def doctor(
    as_json: AsJson = False, data_dir: DataDir = None, config: ConfigFiles = None, overrides: Overrides = None
) -> None:
    """Check this machine, and say what to do.

    CPU, GPU, memory, disk, port, file modes, model, a running server. The exit status is 1 if something is broken.
    """
    settings = load(data_dir, config, overrides).config
    from openclaw_rl.terminal.doctor import run_doctor

    raise typer.Exit(run_doctor(settings, as_json=as_json))


@app.command("config")
def show_config(
    keys: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY|SECTION.KEY=VALUE", help="Only these settings or sections; or set some."),
    ] = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: ConfigFiles = None,
) -> None:
    """Show every setting and where it came from.

    Defaults are weaker than files, files than the environment, and that than the command line.
    """
    given = keys or []
    loaded = load(data_dir, config, [key for key in given if "=" in key])
    from openclaw_rl.terminal.settings import show_settings

    show_settings(loaded, [key for key in given if "=" not in key], as_json=as_json)


@rollouts_app.command("test")
def rehearse_rollouts(
    num_samples: Annotated[int, typer.Option("--num-samples", min=1, metavar="N", help="How many to show.")] = 10,
    output_dir: Annotated[
        Path | None, typer.Option("--output-dir", metavar="DIR", help="Also write them there, as JSON and as text.")
    ] = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: ConfigFiles = None,
    overrides: Overrides = None,
) -> None:
    """Show what would be trained next, and why other turns would not.

    Samples that wait, the oldest first; which of them the next batch holds; and the reasons of all turns that are not
    learned from. Trains nothing.
    """
    settings = load(data_dir, config, overrides).config
    from openclaw_rl.terminal.rehearsal import run_rehearsal

    run_rehearsal(settings, num_samples=num_samples, folder=output_dir, as_json=as_json)


@rollouts_app.command("collect")
def collect_rollouts(
    output_dir: Annotated[Path, typer.Option("--output-dir", metavar="DIR", help="Where the files go.")],
    api_endpoint: Annotated[
        str | None,
        typer.Option("--api-endpoint", metavar="URL", help="The server, http://HOST:PORT; else the one running here."),
    ] = None,
    session_aware: Annotated[
        bool, typer.Option("--session-aware", help="A file for each session, instead of one rollouts.jsonl.")
    ] = False,
    key: Key = None,
    data_dir: DataDir = None,
    config: ConfigFiles = None,
    overrides: Overrides = None,
) -> None:
    """Write your conversations to JSON lines while they happen, also those of a server elsewhere.

    A line for each turn, once it is known what followed it or that nothing will. Ctrl-C ends it and writes the turns
    that nothing has followed yet; started again it goes on from there, and writes nothing twice. What was kept private
    is not written.
    """
    settings = load(data_dir, config, overrides).config
    from openclaw_rl.terminal.address import find_server
    from openclaw_rl.terminal.collecting import run_collect

    url, secret = find_server(settings, url=api_endpoint, key=key, flag="--api-endpoint")
    run_collect(url, secret, output_dir, session_aware=session_aware)


@keys_app.command("list")
def list_keys(
    as_json: AsJson = False, data_dir: DataDir = None, config: ConfigFiles = None, overrides: Overrides = None
) -> None:
    """List all keys, revoked ones too; only their digests are stored."""
    store = load(data_dir, config, overrides).config.store
    from openclaw_rl.terminal.keys import show_keys

    show_keys(store, as_json=as_json)


@keys_app.command("add")
def add_key(
    user: Annotated[str, typer.Argument(metavar="USER", help="Whose key it is: A-Z a-z 0-9 _ . -")],
    label: Annotated[str, typer.Option("--label", metavar="TEXT", help="What it is for.")] = "",
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: ConfigFiles = None,
    overrides: Overrides = None,
) -> None:
    """Make a key for a user and print it, this once. A running server knows it at once."""
    store = load(data_dir, config, overrides).config.store
    from openclaw_rl.terminal import keys

    keys.add_key(store, user, label, as_json=as_json)


@keys_app.command("revoke")
def revoke_key(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The key's id, as `openclaw-rl keys list` shows it.")],
    data_dir: DataDir = None,
    config: ConfigFiles = None,
    overrides: Overrides = None,
) -> None:
    """Make a key open nothing any more. A running server obeys at once."""
    store = load(data_dir, config, overrides).config.store
    from openclaw_rl.terminal import keys

    keys.revoke_key(store, key_id)


def _serve(loaded: LoadedConfig, *, learn: bool) -> None:
    import uvloop

    from openclaw_rl import pipeline
    from openclaw_rl.terminal.screen import make_console
    from openclaw_rl.terminal.startup import print_line, print_started, print_starting, print_stopping

    console, settings = make_console(), loaded.config
    # Other commands find a directory by themselves if they see the same environment.
    is_found = loaded.sources["store.data_dir"].startswith(("default", "env"))

    def started(now: pipeline.Started) -> None:
        key = now.key if settings.gateway.require_key else None
        print_started(console, url=now.url, key=key, model=now.model, data_dir=now.data_dir, is_found=is_found)

    print_starting(console, model=settings.model.name, engine=settings.engine.type)
    run = pipeline.run(
        settings,
        learn=learn,
        on_started=started,
        on_stopping=lambda: print_stopping(console),
        say=lambda line: print_line(console, line),
    )
    uvloop.run(run)


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point; `arguments` None means the process's own."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows no ✓ shows ? instead of a traceback
    failures: list[BaseException] = []
    was_interrupted = False
    try:
        app(args=arguments, prog_name="openclaw-rl")
    except* OpenClawError as group:  # a failure in one of the pipeline's loops arrives in a group
        failures += _leaves(group)
    except* KeyboardInterrupt:  # before typer is at work, which has its own way to end
        was_interrupted = True
    if was_interrupted:
        sys.exit(130)
    for failure in failures:
        complain(str(failure))
    if failures:
        sys.exit(2 if any(isinstance(failure, ConfigError) for failure in failures) else 1)


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for part in error.exceptions for leaf in _leaves(part)]
    return [error]
