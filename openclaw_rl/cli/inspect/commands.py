"""The commands that look (`sessions`, `inspect`, `versions`, `why`, `page`), `rollback`, and their options."""

from __future__ import annotations

from typing import Annotated

import typer

from openclaw_rl.cli.options import AsJson, Loaded, OnlyUser, User, arg, command, opt

room = typer.Typer()


@command(room)
def sessions(
    loaded: Loaded,
    user: OnlyUser = None,
    limit: Annotated[int | None, opt("--limit N", "Only the N seen last.", min=1)] = None,
    as_json: AsJson = False,
) -> None:
    """List the conversations that are stored, the one seen last first."""
    from openclaw_rl.cli.inspect.sessions import show_sessions

    show_sessions(loaded.config.store, user=user, limit=limit, as_json=as_json)


@command(room)
def inspect(
    loaded: Loaded,
    session: Annotated[str, arg("SESSION", "A session, the start of its name, or a turn such as s-5f1c.2.")],
    turn: Annotated[int | None, opt("--turn N", "Only turn N, uncut.", min=0)] = None,
    as_json: AsJson = False,
) -> None:
    """Show the turns of a session, and what was learned from them.

    What was asked, answered and said next; the judge's score, votes and hints; and the sample, its tokens green where
    they become more likely, red where less, blue where only a hint moves them, or the reason why there is none. With
    `--json` also every token id and log-prob, exactly as sampled.
    """
    from openclaw_rl.cli.inspect.sessions import show_session

    show_session(loaded.config, session, index=turn, as_json=as_json)


@command(room)
def versions(
    loaded: Loaded,
    number: Annotated[
        str | None, arg("N", "Only this one, with what its gate measured and how people fared with it.")
    ] = None,
    user: OnlyUser = None,
    as_json: AsJson = False,
) -> None:
    """List what was learned: every version, what it learned from, and which one answers."""
    from openclaw_rl.cli.inspect.versions import show_version, show_versions

    if number is None:
        show_versions(loaded.config.store, user=user, as_json=as_json)
    else:
        show_version(loaded.config, version_argument(number), user=user or "local", as_json=as_json)


def version_argument(text: str) -> int:
    """The number of a version, with or without its v."""
    if not (digits := text.removeprefix("v")).isdecimal():
        raise typer.BadParameter(f"{text!r} is no number of a version, such as 3", param_hint="N")
    return int(digits)


@command(room)
def page(loaded: Loaded) -> None:
    """Print a link to the page of the running server: it lets its owner in, once, within 15 minutes."""
    from openclaw_rl.cli.inspect.page import show_link

    show_link(loaded.config.store)


@command(room)
def rollback(
    loaded: Loaded,
    number: Annotated[str, arg("N", "The version to go back to; 0 is the base model.")],
    user: User = "local",
    untried: Annotated[
        bool, opt("--untried", "Allow a version that never served, such as one that its gate rejected.")
    ] = False,
) -> None:
    """Let an earlier version answer again. Running answers end on theirs; no request is refused."""
    from openclaw_rl.cli.inspect.versions import roll_back

    roll_back(loaded.config.store, version_argument(number), user=user, untried=untried)


@command(room)
def why(
    loaded: Loaded,
    name: Annotated[str, arg("VERSION|TURN", "A version such as v3 or v3.ann, or a turn such as s-5f1c.2.")],
    user: Annotated[str | None, opt("--user USER", "Whose version.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a version learned from, or what became of a turn.

    For each lesson: what was said, the votes and hints, the tokens that moved most with their probabilities before and
    after, and the version with its gate's figures. Probabilities need a running server.
    """
    from openclaw_rl.cli.inspect.why import show_why

    show_why(loaded.config, name, user=user, as_json=as_json)
