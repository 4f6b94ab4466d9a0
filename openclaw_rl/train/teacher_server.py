"""A server of others -> what its model says at each token of given sequences: the likeliest tokens there.

Any server will do that answers `/v1/completions` to token ids with `prompt_logprobs`: vLLM does, as it is started by
default. It tells log-probs at temperature 1, of its own likeliest tokens and of the token that is there, and of no
others; `why_unfit` names the settings that ask for more. `check_teacher_server` looks at a server before anything is
learned. Standard library only, but for comparing tokenizers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from openclaw_rl.errors import ConfigError, TrainError
from openclaw_rl.types import Json

_TIMEOUT_S = 600.0
"""A long conversation on a CPU takes minutes."""
_LOOK_S = 30.0
_TOGETHER = 8
"""Sequences of one request: what a server reads side by side, and its answer still fits into memory."""
_MISSING = -9998.0
"""vLLM writes -9999 for none."""

_TEXT = "Größe 12345, 東京 → naïve  café\n\tif (x != y) { return f'{z}'; } \U0001f600 ’tis"

Likely = Mapping[int, float]
"""Log-probs by token id: of the likeliest ones, and of the token that stands there."""


class TeacherServer:
    """One model of one server. Errors are `TrainError`s: training rests, and tries again."""

    def __init__(self, url: str, *, model: str | None = None, key: str | None = None) -> None:
        self._at = urlsplit(url.rstrip("/").removesuffix("/v1"))
        if self._at.scheme not in ("http", "https") or not self._at.hostname or "@" in self._at.netloc:
            raise TrainError("name it as http://10.0.0.5:8000, and its key with training.teacher_api_key")
        self._connect = HTTPSConnection if self._at.scheme == "https" else HTTPConnection
        self._model = model
        self._key = key

    def __str__(self) -> str:
        return f"the teacher at {self._at.geturl()}"

    def model(self) -> str:
        """Its name there: the one that was given, or the first that is no adapter of another."""
        if self._model is None:
            listed = self._ask("/v1/models", None, timeout_s=_LOOK_S)
            try:
                self._model = next(str(one["id"]) for one in listed["data"] if not one.get("parent"))
            except (KeyError, TypeError, StopIteration):
                raise TrainError(f"{self} lists no model; name it with training.teacher_model") from None
        return self._model

    def likely(self, sequences: Sequence[Sequence[int]], starts: Sequence[int], top: int) -> Iterator[list[Likely]]:
        """For each sequence, what is likely at its tokens from `start` on, each given all before it."""
        for first in range(0, len(sequences), _TOGETHER):
            part = [list(ids) for ids in sequences[first : first + _TOGETHER]]
            body = {"model": self.model(), "prompt": part, "max_tokens": 1, "temperature": 0, "prompt_logprobs": top}
            raw = self._ask("/v1/completions", body, timeout_s=_TIMEOUT_S)
            try:
                choices = sorted(raw["choices"], key=lambda choice: int(choice["index"]))
                rows = [choice.get("prompt_logprobs") for choice in choices]
            except (KeyError, TypeError, ValueError):
                raise TrainError(f"{self} answered with no completion of each prompt") from None
            if len(rows) != len(part) or None in rows:
                raise TrainError(
                    f"{self} does not tell log-probs of a prompt: it takes a server whose /v1/completions knows "
                    "prompt_logprobs, as vLLM's does"
                )
            for ids, start, found in zip(part, starts[first:], rows, strict=False):
                yield [self._row(row, token) for row, token in zip(found[start:], ids[start:], strict=True)]

    def tokens(self, text: str) -> list[int]:
        """How it reads a text."""
        body = {"model": self.model(), "prompt": text, "add_special_tokens": False}
        try:
            return [int(token) for token in self._ask("/tokenize", body, timeout_s=_LOOK_S)["tokens"]]
        except (KeyError, TypeError, ValueError):
            raise TrainError(f"{self} answers /tokenize with no tokens, so its tokenizer cannot be compared") from None

    def _row(self, row: Mapping[str, Json], token: int) -> Likely:
        try:
            likely = {int(name): float(entry["logprob"]) for name, entry in row.items()}
        except (AttributeError, KeyError, TypeError, ValueError):
            raise TrainError(f"{self} wrote log-probs of a prompt in another form than vLLM's") from None
        if token not in likely or not all(logprob > _MISSING for logprob in likely.values()):
            raise TrainError(f"{self} gave no log-prob for a token: its weights are broken")
        return likely

    def _ask(self, path: str, body: Mapping[str, Json] | None, *, timeout_s: float) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        if self._key:
            headers["authorization"] = f"Bearer {self._key}"
        connection = self._connect(self._at.netloc, timeout=timeout_s)
        try:
            connection.request("GET" if data is None else "POST", self._at.path + path, data, headers)
            answer = connection.getresponse()
            content, status = answer.read(), answer.status
            if status == 200:
                return json.loads(content)
        except (OSError, HTTPException, ValueError) as error:
            raise TrainError(
                f"{self} does not answer ({error}): start it, or choose another with training.teacher"
            ) from None
        finally:
            connection.close()
        raise TrainError(self._refusal(path, status, content[:2000].decode(errors="replace").strip()))

    def _refusal(self, path: str, status: int, said: str) -> str:
        if status in (401, 403):
            return f"{self} asks for a key: set training.teacher_api_key"
        if "max allowed" in said:
            return (
                f"{self} tells of fewer tokens than are asked for: start it with a higher --max-logprobs, or lower "
                f"training.top_k and training.teacher_top_k ({said})"
            )
        if status == 404 and path == "/v1/completions":
            return f"{self} has no /v1/completions, or no model {self._model}; check training.teacher_model ({said})"
        return f"{self} answered {path} with {status}: {said or 'no reason given'}"


def num_likely(training: Mapping[str, Any]) -> int:
    """How many of the likeliest tokens a step with these values of `training` asks a teacher for."""
    shows = training["demonstrations"] != "off" or training["distillation"] == "forward_kl"
    return max(training["top_k"], training["teacher_top_k"]) if shows else int(training["top_k"])


def why_unfit(training: Mapping[str, Any]) -> str:
    """Which of these values of `training` ask for what such a server does not tell; empty if none does."""
    for name in ("logprob_temperature", "teacher_temperature"):
        if training[name] != 1.0:
            return (
                f"a teacher at training.teacher_url tells log-probs at temperature 1, and training.{name} is "
                f"{json.dumps(training[name])}: set it to 1"
            )
    subset = training["subset_mode"]
    if training["distillation"] in ("topk", "reverse_kl") and subset in ("student", "union"):
        return (
            f"a teacher at training.teacher_url tells log-probs of its own likeliest tokens, and "
            f"training.subset_mode={subset} asks for those of the student's: set training.subset_mode to teacher or "
            "overlap"
        )
    return ""


def check_teacher_server(training: Mapping[str, Any], key: str | None, tokenizer: Path) -> None:
    """`ConfigError` where a step could not be taken with it, or its ids mean other words. Blocking."""
    if why := why_unfit(training):
        raise ConfigError(why)
    from tokenizers import Tokenizer  # only where there is a server to compare with

    ours = Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    special = "".join(str(token.content) for token in ours.get_added_tokens_decoder().values())[:2000]
    ids = ours.encode(_TEXT + special, add_special_tokens=False).ids
    try:
        server = TeacherServer(training["teacher_url"], model=training["teacher_model"], key=key)
        if server.tokens(_TEXT + special) != ids:
            raise ConfigError(
                f"{server} has another tokenizer than the model: ids would mean other words; serve a model of the same "
                "family, or set training.teacher to base, current or ema"
            )
        list(server.likely([ids[:8]], [1], num_likely(training)))
    except TrainError as error:
        raise ConfigError(f"training.teacher_url: {error}") from None
