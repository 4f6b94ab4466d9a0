"""The agents that people have, and what each is to be told: a served model -> the settings of a client's files.

Pure, but for the variables with which people move those files. A client is one entry in `CLIENTS`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from openclaw_rl.cli.connect.files import Settings
from openclaw_rl.clients import (
    PROVIDER,
    Served,
    claude_variables,
    codex_provider,
    codex_top,
    openai_variables,
    opencode_provider,
    toml_value,
)
from openclaw_rl.types import Json

BIG_MODEL = "Qwen/Qwen3-4B-Instruct-2507"
"""A small model with a window that is large enough for every agent here."""

HIDDEN_KEY = "ocrl-…"
"""Stands for a key wherever something is only shown."""

_KEY = re.compile(r"ocrl-[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """Where a person's programs keep their settings."""

    folder: Path
    env: Mapping[str, str]

    def moved(self, variable: str, default: str) -> Path:
        """The folder that a variable names, else the one that the program takes."""
        named = self.env.get(variable)
        return Path(named).expanduser() if named else self.folder / default


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """An agent: what it speaks, how much its first request holds, and how it is told where to ask.

    `agent` opens the User-Agent that it sends, and `known_as` the name that its sessions are stored under. `program`
    with each of `asks`, until one works, asks one question and ends. `files` is None for what has no file of its own,
    and `lines` is what people copy instead.
    """

    name: str
    dialect: Literal["chat", "responses", "messages"] = "chat"
    agent: str
    known_as: str
    first_tokens: int
    files: Callable[[Served, Home], list[Settings]] | None = None
    lines: Callable[[Served], str] | None = None
    program: str | None = None
    asks: tuple[tuple[str, ...], ...] = ()

    @property
    def needs_window(self) -> int:
        """Tokens: twice its first request, rounded up to a power of two; the other half is for the work itself."""
        return 1 << (2 * self.first_tokens - 1).bit_length() if self.first_tokens else 0


def keys_in(text: str) -> set[str]:
    """The keys of ours, of whatever server, that stand in a text."""
    return set(_KEY.findall(text))


def masked(text: str) -> str:
    """A text that may be shown.

    >>> masked("key: ocrl-s3cret_x")
    'key: ocrl-…'
    """
    return _KEY.sub(HIDDEN_KEY, text)


def model_name(served: str) -> str:
    """What clients call the model: a folder goes by its last name, as they cannot use a path.

    >>> model_name("./models/my-llama"), model_name("Qwen/Qwen3-4B")
    ('my-llama', 'Qwen/Qwen3-4B')
    """
    return Path(served).resolve().name if served.startswith((".", "/", "~")) else served


def window_warning(client: Client, window: int) -> str | None:
    """What to say beforehand if a client's requests will not fit; None if they will."""
    if window >= client.needs_window:
        return None
    what = f"{client.name} begins with about {client.first_tokens} tokens and needs a window of {client.needs_window}"
    fate = "its first request will be refused" if window <= client.first_tokens else "it will soon be full"
    return f"{what}; this model has {window}, so {fate}. Serve a larger one: `openclaw-rl up model.name={BIG_MODEL}`"


def exports(values: Mapping[str, str]) -> str:
    """Lines for a shell."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in values.items())


def _codex(served: Served, home: Home) -> list[Settings]:
    top, provider = codex_top(served), codex_provider(served)
    return [
        Settings(
            path=home.moved("CODEX_HOME", ".codex") / "config.toml",
            form="toml",
            values={**{(name,): value for name, value in top.items()}, ("model_providers", PROVIDER): provider},
            head=[f"{name} = {toml_value(value)}" for name, value in top.items()],
            tail=[
                f"[model_providers.{PROVIDER}]",
                *(f"{name} = {toml_value(value)}" for name, value in provider.items()),
            ],
        )
    ]


def _claude_code(served: Served, home: Home) -> list[Settings]:
    values: dict[tuple[str, ...], Json] = {("env", name): value for name, value in claude_variables(served).items()}
    path = home.moved("CLAUDE_CONFIG_DIR", ".claude") / "settings.json"
    return [Settings(path=path, form="json", values=values)]


def _opencode(served: Served, home: Home) -> list[Settings]:
    folder = home.moved("XDG_CONFIG_HOME", ".config") / "opencode"
    # It reads both, and what stands in the second wins.
    second = folder / "opencode.jsonc"
    return [
        Settings(
            path=second if second.exists() else folder / "opencode.json",
            form="json",
            values={
                ("provider", PROVIDER): opencode_provider(served),
                ("model",): served.named,
                ("small_model",): served.named,
            },
        )
    ]


def _pi(served: Served, home: Home) -> list[Settings]:
    folder = home.moved("PI_CODING_AGENT_DIR", ".pi/agent")
    provider: Json = {
        "baseUrl": served.v1,
        "api": "openai-completions",
        "apiKey": served.key,
        "compat": {"sendSessionAffinityHeaders": True},
        "models": [{"id": served.model, "contextWindow": served.window, "maxTokens": served.max_answer}],
    }
    chosen: dict[tuple[str, ...], Json] = {("defaultProvider",): PROVIDER, ("defaultModel",): served.model}
    return [
        Settings(path=folder / "models.json", form="json", values={("providers", PROVIDER): provider}),
        Settings(path=folder / "settings.json", form="json", values=chosen),
    ]


def _aider(served: Served, home: Home) -> list[Settings]:
    values: dict[str, str | bool] = {
        "openai-api-base": served.v1,
        "openai-api-key": served.key,
        "model": f"openai/{served.model}",
        "show-model-warnings": False,  # it asks a question at every start about a model that it does not know
    }
    return [
        Settings(
            path=home.folder / ".aider.conf.yml",
            form="yaml",
            values={(name,): value for name, value in values.items()},
            tail=[f"{name}: {toml_value(value)}" for name, value in values.items()],
        )
    ]


def _litellm(served: Served) -> str:
    name, url, key = (toml_value(value) for value in (f"openai/{served.model}", served.v1, served.key))
    return (
        f"# in Python: litellm.completion(model={name}, api_base={url}, api_key={key}, messages=[…])\n"
        "model_list:\n"
        f"  - model_name: {toml_value(served.model)}\n"
        "    litellm_params:\n"
        f"      model: {name}\n"
        f"      api_base: {url}\n"
        f"      api_key: {key}\n"
    )


def _env(served: Served) -> str:
    return exports(
        {
            **openai_variables(served),
            "ANTHROPIC_BASE_URL": served.url,
            "ANTHROPIC_AUTH_TOKEN": served.key,
        }
    )


_QUESTION = "Say hello in one word."
_OPENCLAW_ASK = ("agent", "--agent", "main", "--message", _QUESTION)
CLIENTS: Mapping[str, Client] = {
    client.name: client
    for client in (
        Client(
            name="openclaw",
            agent="OpenAI/JS",
            known_as="openclaw",
            first_tokens=15_100,
            program="openclaw",
            # Through its gateway where one runs, which `--local` is refused beside.
            asks=(_OPENCLAW_ASK, (*_OPENCLAW_ASK, "--local")),
        ),
        Client(
            name="codex",
            dialect="responses",
            agent="codex_exec",
            known_as="codex",
            first_tokens=8_800,
            files=_codex,
            program="codex",
            asks=(("exec", "--skip-git-repo-check", _QUESTION),),
        ),
        Client(
            name="claude-code",
            dialect="messages",
            agent="claude-cli",
            known_as="claude",
            first_tokens=11_400,
            files=_claude_code,
            lines=lambda served: exports(claude_variables(served)),
            program="claude",
            asks=(("-p", _QUESTION),),
        ),
        Client(
            name="opencode",
            agent="opencode",
            known_as="opencode",
            first_tokens=7_300,
            files=_opencode,
            program="opencode",
            asks=(("run", _QUESTION),),
        ),
        Client(
            name="pi",
            agent="OpenAI/JS",
            known_as="OpenAI/JS",
            first_tokens=1_400,
            files=_pi,
            program="pi",
            asks=(("-p", _QUESTION),),
        ),
        Client(
            name="aider",
            agent="OpenAI/Python",
            known_as="OpenAI/Python",
            first_tokens=2_000,
            files=_aider,
            program="aider",
            asks=(("--no-git", "--yes-always", "--message", _QUESTION),),
        ),
        Client(name="litellm", agent="OpenAI/Python", known_as="OpenAI/Python", first_tokens=0, lines=_litellm),
        Client(name="env", agent="OpenAI/Python", known_as="OpenAI/Python", first_tokens=0, lines=_env),
    )
}
"""By name. `first_tokens` is the longest first request that was measured; see docs/clients.md."""
