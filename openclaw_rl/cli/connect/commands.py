"""`openclaw-rl connect` and `keys`, and their options."""

from __future__ import annotations

from typing import Annotated

import typer

from openclaw_rl.cli.options import AsJson, Loaded, Yes, arg, command, opt

room = typer.Typer()
keys = typer.Typer(help="Who may call the gateway: list, add and revoke API keys.", no_args_is_help=True)
room.add_typer(keys, name="keys")

Requests = Annotated[
    int | None, opt("--requests-per-minute N", "Most requests a minute; 0: as gateway.requests_per_minute says.")
]
Tokens = Annotated[
    int | None, opt("--tokens-per-minute N", "Most tokens a minute, prompts and answers; 0: as the settings say.")
]
TrainingShare = Annotated[
    float | None, opt("--training-share X", "Largest share of the trainer's time for its user; 0: as the settings say.")
]
Weight = Annotated[
    float | None, opt("--weight X", "How much its user counts where people take turns, 1 if not said; 0: not said.")
]


@command(room)
def connect(
    loaded: Loaded,
    client: Annotated[
        str, arg("CLIENT", "openclaw, codex, claude-code, opencode, pi, aider, litellm, or env for any other.")
    ],
    remove: Annotated[bool, opt("--remove", "Undo it: settings as they were, the key revoked.")] = False,
    yes: Yes = False,
    only_print: Annotated[bool, opt("--print", "Change nothing: print what is to be set.")] = False,
    try_client: Annotated[bool, opt("--try", "Ask the client itself a question afterwards.")] = False,
    as_json: AsJson = False,
) -> None:
    """Let an agent that you have use the running server, and learn.

    Shows what will change and asks, makes a key, changes the client's settings, and sees that a first turn arrives as
    one to learn from. `--remove` puts everything back.
    """
    from openclaw_rl.cli.connect import connecting

    def confirm(question: str) -> None:
        if not yes:
            typer.confirm(question, abort=True, err=True)

    if remove:
        connecting.disconnect(loaded.config, client, as_json=as_json, confirm=confirm)
        return
    raise typer.Exit(
        connecting.connect(
            loaded.config, client, only_print=only_print, try_client=try_client, as_json=as_json, confirm=confirm
        )
    )


@command(keys, "list")
def list_keys(loaded: Loaded, as_json: AsJson = False) -> None:
    """List all keys, revoked ones too; only their digests are stored."""
    from openclaw_rl.cli.connect.keys import show_keys

    show_keys(loaded.config.store, as_json=as_json)


@command(keys, "add")
def add_key(
    loaded: Loaded,
    user: Annotated[str, arg("USER", "Whose key it is: A-Z a-z 0-9 _ . -")],
    label: Annotated[str, opt("--label TEXT", "What it is for.")] = "",
    requests_per_minute: Requests = None,
    tokens_per_minute: Tokens = None,
    training_share: TrainingShare = None,
    weight: Weight = None,
    as_json: AsJson = False,
) -> None:
    """Make a key for a user and print it, this once. A running server knows it at once."""
    from openclaw_rl.cli.connect import keys

    terms = _terms(requests_per_minute, tokens_per_minute, training_share, weight)
    keys.add_key(loaded.config.store, user, label, as_json=as_json, terms=terms)


@command(keys, "limit")
def limit_key(
    loaded: Loaded,
    key_id: Annotated[str, arg("ID", "The key's id, as `openclaw-rl keys list` shows it.")],
    requests_per_minute: Requests = None,
    tokens_per_minute: Tokens = None,
    training_share: TrainingShare = None,
    weight: Weight = None,
) -> None:
    """Give a key limits and a weight of its own. A running server obeys from its next request on."""
    from openclaw_rl.cli.connect import keys

    terms = _terms(requests_per_minute, tokens_per_minute, training_share, weight)
    keys.limit_key(loaded.config.store, key_id, terms)


def _terms(
    requests: int | None, tokens: int | None, share: float | None, weight: float | None
) -> dict[str, float | None]:
    return {
        "requests_per_minute": requests,
        "tokens_per_minute": tokens,
        "training_share": share,
        "weight": weight,
    }


@command(keys, "revoke")
def revoke_key(
    loaded: Loaded,
    key_id: Annotated[str, arg("ID", "The key's id, as `openclaw-rl keys list` shows it.")],
) -> None:
    """Make a key open nothing any more. A running server obeys at once."""
    from openclaw_rl.cli.connect import keys

    keys.revoke_key(loaded.config.store, key_id)
