"""Does a client's first turn arrive as a main turn? Asked with one request of its shape, or by running the client.

The request goes the client's own way (its dialect, its key, how it names a session) and is kept out of training;
what the store then holds decides. The words of real prompts play no part.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass

from openclaw_rl.cli.address import ServerGone
from openclaw_rl.cli.client import GatewayClient, ServerRefused
from openclaw_rl.cli.connect.clients import Client, masked
from openclaw_rl.cli.connect.openclaw import ProgramFailed, run_program
from openclaw_rl.cli.screen import one_line
from openclaw_rl.clients import Served
from openclaw_rl.config import StoreConfig
from openclaw_rl.types import Json, split_turn_id
from openclaw_rl.views.rows import open_rows

_PATIENCE_S = 300.0
_SYSTEM = "You help a person with their work. This is a first request, sent to see that requests arrive."
_MAX_TOKENS = 16
_PARAMETERS: dict[str, Json] = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
_READS = "Reads a file."
_NAMES = {"responses": "Responses", "messages": "Anthropic Messages", "chat": "Chat Completions"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstTurn:
    """What became of a first turn. `text` says it to a person."""

    ok: bool
    text: str
    turn: str | None = None
    kind: str | None = None
    client: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRequest:
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Json]


def first_request(client: Client, model: str, session: str) -> FirstRequest:
    """A request with the structure of this client's first one: its path, how it names its session, its fields."""
    # Nothing else says the same: a client that names no session is known by its words.
    asked = f"Say hello in one word. ({session})"
    if client.dialect == "responses":
        tool: Json = {"type": "function", "name": "read", "description": _READS, "parameters": _PARAMETERS}
        return FirstRequest(
            path="/v1/responses",
            headers={
                "session-id": session,
                "x-codex-turn-metadata": json.dumps({"session_id": session, "request_kind": "turn"}),
            },
            body={
                "model": model,
                "instructions": _SYSTEM,
                "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": asked}]}],
                "tools": [tool],
                "tool_choice": "auto",
                "max_output_tokens": _MAX_TOKENS,
                "store": False,
                "stream": True,
                "prompt_cache_key": session,
            },
        )
    if client.dialect == "messages":
        return FirstRequest(
            path="/v1/messages?beta=true",
            headers={"x-claude-code-session-id": session, "anthropic-version": "2023-06-01"},
            body={
                "model": model,
                "max_tokens": _MAX_TOKENS,
                "system": [{"type": "text", "text": _SYSTEM}],
                "messages": [{"role": "user", "content": [{"type": "text", "text": asked}]}],
                "tools": [{"name": "read", "description": _READS, "input_schema": _PARAMETERS}],
                "stream": True,
                "metadata": {"user_id": json.dumps({"session_id": session})},
            },
        )
    function: Json = {"name": "read", "description": _READS, "parameters": _PARAMETERS}
    headers: dict[str, str] = {}
    extra: dict[str, Json] = {}
    if client.name == "openclaw":
        headers = {"x-session-affinity": f"{session}:0", "session_id": f"{session}:0"}
        asked += f"\n\nRuntime: agent=main | session=agent:main:{session} | sessionId={session} | model=rl/{model}"
        extra = {"prompt_cache_key": f"{session}:0"}
    elif client.name == "opencode":
        headers = {"x-session-id": session, "x-session-affinity": session}
    elif client.name == "pi":
        headers = {"x-session-affinity": session, "session_id": session}
    if client.name != "aider":
        extra["tools"] = [{"type": "function", "function": function}]
    return FirstRequest(
        path="/v1/chat/completions",
        headers=headers,
        body={
            "model": model,
            "messages": [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": asked}],
            "max_tokens": _MAX_TOKENS,
            "stream": True,
            **extra,
        },
    )


async def check_first_turn(store: StoreConfig, client: Client, served: Served) -> FirstTurn:
    """Sends a first request as the client would, and looks at what was kept of it."""
    request = first_request(client, served.model, f"connect-{client.name}-{secrets.token_hex(4)}")
    try:
        async with (
            asyncio.timeout(_PATIENCE_S),
            GatewayClient(served.url, served.key, name=f"{client.agent}/0") as wire,
        ):
            turn = await wire.send(request.path, request.body, {**request.headers, "X-No-Train": "session"})
    except TimeoutError:
        return FirstTurn(ok=False, text="a first turn was not answered in time; is the server busy?")
    except ServerRefused as refusal:
        if refusal.status == 404:
            text = (
                f"this server does not speak the {_NAMES[client.dialect]} API that {client.name} needs "
                f"({request.path.partition('?')[0]} is not there); start a newer openclaw-rl"
            )
            return FirstTurn(ok=False, text=text)
        return FirstTurn(ok=False, text=f"a first turn was refused: {refusal}")
    except ServerGone as error:
        return FirstTurn(ok=False, text=f"a first turn did not arrive: {error}")
    return arrival(store, client, turn)


def arrival(store: StoreConfig, client: Client, turn: str) -> FirstTurn:
    """What the store says of a turn."""
    rows = open_rows(store)
    session_id, index = split_turn_id(turn.partition(",")[0])
    kept, session = rows.turn(session_id, index), rows.session(session_id)
    if kept is None or session is None:
        return FirstTurn(ok=False, text=f"a first turn was answered, but {turn} is not in the store", turn=turn)
    facts = {"turn": turn, "kind": kept.kind, "client": session.client}
    if kept.completion.finish_reason == "abort":
        return FirstTurn(ok=False, text=f"a first turn ({turn}) broke off before its end", **facts)
    if kept.kind != "main":
        text = f"a first turn arrived, but as a side turn ({turn}): nothing would be learned from it"
        return FirstTurn(ok=False, text=text, **facts)
    if not session.client.lower().startswith(client.known_as.lower()):
        text = f"a first turn arrived as main ({turn}), but from {session.client!r}, not from {client.known_as}"
        return FirstTurn(ok=False, text=text, **facts)
    return FirstTurn(ok=True, text=f"a first turn arrived as main: {turn}, from {session.client}", **facts)


def run_client(store: StoreConfig, client: Client, program: str) -> FirstTurn:
    """Asks the client itself one question, and looks for the main turn that comes of it."""
    started, said = time.time(), ""
    for words in client.asks:
        try:
            with tempfile.TemporaryDirectory(prefix="openclaw-rl-try-") as folder:
                done = run_program([program, *words], timeout_s=_PATIENCE_S, cwd=folder)
        except ProgramFailed as error:
            return FirstTurn(ok=False, text=str(error))
        if (turn := _newest_main(store, started)) is not None:
            return arrival(store, client, turn)
        said = f"exit status {done.returncode}: {one_line(masked(done.stderr or done.stdout), 300)}"
    return FirstTurn(ok=False, text=f"{client.name} ran, but no main turn arrived ({said})")


def _newest_main(store: StoreConfig, since: float) -> str | None:
    rows = open_rows(store)
    for summary in rows.sessions():
        if summary.session.last_seen_at >= since:
            for turn in rows.turns(summary.session.id):
                if turn.created_at >= since and turn.kind == "main":
                    return turn.id
    return None
