"""What agents of others are told so that they ask our gateway: a served model -> the values of each one's settings.

Pure. It does not know where a program keeps its settings, nor whether a person's own or those of an attempt are meant.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from openclaw_rl.types import Json

PROVIDER = "rl"
"""Our name among a client's providers. OpenClaw's own plugins own many others, and hooks do not reach those."""

_TITLE = "OpenClaw-RL"
_MAX_ANSWER = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What a running server serves, and the key for one client."""

    url: str
    model: str
    window: int
    key: str

    @property
    def v1(self) -> str:
        return f"{self.url}/v1"

    @property
    def named(self) -> str:
        """The model, for clients that write the provider before its name."""
        return f"{PROVIDER}/{self.model}"

    @property
    def max_answer(self) -> int:
        """How long an answer a client should ask for: no more than a quarter of the window."""
        return max(1, min(_MAX_ANSWER, self.window // 4))


def openclaw_provider(served: Served) -> dict[str, Json]:
    """OpenClaw's provider entry. The two flags make it name the session of every request."""
    return {
        "baseUrl": served.v1,
        "apiKey": served.key,
        "api": "openai-completions",
        "models": [
            {
                "id": served.model,
                "name": f"{served.model} ({_TITLE})",
                "reasoning": False,
                "input": ["text"],
                "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
                "contextWindow": served.window,
                "maxTokens": served.max_answer,
                "compat": {"sendSessionAffinityHeaders": True, "supportsPromptCacheKey": True},
            }
        ],
    }


def codex_top(served: Served) -> dict[str, Json]:
    """What stands at the top of Codex's settings; the provider that it names is `model_providers.rl`."""
    return {"model": served.model, "model_provider": PROVIDER, "model_context_window": served.window}


def codex_provider(served: Served) -> dict[str, Json]:
    # A header, not `env_key`: nothing has to be exported in every shell.
    headers = {"x-api-key": served.key}
    return {"name": _TITLE, "base_url": served.v1, "wire_api": "responses", "http_headers": headers}


def claude_variables(served: Served) -> dict[str, str]:
    small = ("ANTHROPIC_SMALL_FAST_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL")
    names = ("ANTHROPIC_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL", "ANTHROPIC_DEFAULT_OPUS_MODEL", *small)
    return {
        "ANTHROPIC_BASE_URL": served.url,
        "ANTHROPIC_AUTH_TOKEN": served.key,
        **dict.fromkeys(names, served.model),
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(served.max_answer),
        "CLAUDE_CODE_AUTO_COMPACT_WINDOW": str(served.window),  # it takes an unknown model's for a million
        "CLAUDE_CODE_GATEWAY_HINT_HEADERS": "1",  # each request says what it is for
    }


def opencode_provider(served: Served) -> dict[str, Json]:
    return {
        "npm": "@ai-sdk/openai-compatible",
        "name": _TITLE,
        "options": {"baseURL": served.v1, "apiKey": served.key},
        "models": {
            served.model: {
                "name": served.model,
                "limit": {"context": served.window, "output": served.max_answer},
            }
        },
    }


def openai_variables(served: Served) -> dict[str, str]:
    """What programs read that use OpenAI's library."""
    return {"OPENAI_BASE_URL": served.v1, "OPENAI_API_KEY": served.key}


def toml_value(value: Json) -> str:
    """A value as TOML writes it in one line; a scalar is written the same in YAML.

    >>> toml_value({"x-api-key": "k"})
    '{ "x-api-key" = "k" }'
    """
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{toml_value(name)} = {toml_value(each)}' for name, each in value.items())} }}"
    return json.dumps(value, ensure_ascii=False)
