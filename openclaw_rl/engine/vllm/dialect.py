"""vLLM's token endpoint: our requests in its words, and its answers in ours. For 0.32 and newer.

Two of its ways need care. `logprobs=k` counts the sampled token among the k alternatives, so one more is asked for; and
what it cannot say is written as -9999, which is no log-prob. Log-probs are those that it sampled from
(`--logprobs-mode processed_logprobs`): log softmax(logits / T), and that of softmax(logits) for greedy answers, unless
the request cuts or bends the distribution.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from openclaw_rl.engine.foreign.dialect import Asking, ServerFacts, StreamReader
from openclaw_rl.engine.foreign.probing import MODELS, PROBE_IDS, PROBE_T, are_at_temperature, check_version
from openclaw_rl.engine.worker import wire
from openclaw_rl.engine.worker.connections import Connections, refusal
from openclaw_rl.errors import ConfigError, EngineError, EngineLost
from openclaw_rl.types import Delta, GenerateRequest, Json, Scored, ScoreRequest, TokenLogprob
from openclaw_rl.types.messages import SHAPING

GENERATE = "POST /inference/v1/generate"
MAX_LOGPROBS = 21
"""What the server is started with: twenty alternatives beside the sampled token."""
_MISSING = -9998.0
"""Log-probs below it stand for none."""


class VllmDialect:
    """`foreign.dialect.ServerDialect`."""

    name, pip_name = "vLLM", "vllm"
    oldest: tuple[int, ...] = (0, 32)
    key_variable = "VLLM_API_KEY"
    lora_flags = "--enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 in its environment"
    logprobs_changed_by = SHAPING

    def generate(self, request: GenerateRequest, *, model: str, base: str, max_tokens: int, salt: str) -> Asking:
        sampling = request.sampling
        params: dict[str, Json] = {
            **sampling.to_json(),
            "max_tokens": max_tokens,
            "logprobs": sampling.top_logprobs + 1 if sampling.top_logprobs else 0,
            "stop_token_ids": request.stop_token_ids,
            "ignore_eos": True,  # what ends an answer is in the request, whatever the checkpoint says
            "detokenize": False,
        }
        del params["top_logprobs"]
        if not sampling.logit_bias:
            del params["logit_bias"]
        body = {
            "request_id": request.request_id,
            "model": model,
            "token_ids": request.token_ids if isinstance(request.token_ids, list | tuple) else list(request.token_ids),
            "sampling_params": params,
            "stream": True,
            "stream_options": {"include_usage": True},
            "priority": request.priority,
            "cache_salt": salt,
        }
        return Asking(route=GENERATE, body=body)

    def reader(self, request: GenerateRequest, *, version: str) -> StreamReader:
        return _VllmReader(version, request.sampling.top_logprobs)

    def score(self, request: ScoreRequest, number: int, *, model: str, base: str, salt: str) -> Asking:
        params = {"max_tokens": 1, "temperature": 0.0, "prompt_logprobs": request.top_logprobs, "detokenize": False}
        body = {
            "request_id": f"{request.request_id}-{number}",
            "model": model,
            "token_ids": request.sequences[number],
            "sampling_params": params,
            "priority": request.priority,
            "cache_salt": salt,
        }
        return Asking(route=GENERATE, body=body)

    def scored(self, raw: Json, ids: Sequence[int], start: int, *, top: int) -> Scored:
        rows = raw["prompt_logprobs"][start:]
        if len(rows) != len(ids) - start:
            raise EngineError(f"vLLM scored {len(rows)} tokens of {len(ids) - start}")
        wanted = [_logprob(row[str(token)]["logprob"]) for token, row in zip(ids[start:], rows, strict=True)]
        tops = tuple(_best(((int(token), entry) for token, entry in row.items()), top) for row in rows)
        return Scored(logprobs=tuple(wanted), top_logprobs=tops if top else None)

    def load(self, name: str, folder: Path) -> Asking:
        return Asking(route="POST /v1/load_lora_adapter", body={"lora_name": name, "lora_path": str(folder)})

    def unload(self, name: str) -> Asking:
        return Asking(route="POST /v1/unload_lora_adapter", body={"lora_name": name})

    async def facts(self, connections: Connections) -> ServerFacts | None:
        """It listens only once its model is loaded."""
        url = connections.address
        answer = await connections.look("GET /version")
        if answer.status == 503:
            return None
        try:
            version = str(wire.loads(answer.body)["version"])
        except (ValueError, TypeError, KeyError):
            raise ConfigError(
                f"engine.url={url} is no vLLM server: GET /version answered {answer.status}; name the address of "
                "`vllm serve`, without /v1"
            ) from None
        check_version(self, version, str(url))
        listed = await connections.look(MODELS)
        if listed.status in (401, 403):
            raise ConfigError(f"the vLLM server at {url} asks for a key: set engine.api_key to its --api-key")
        if listed.status != 200:
            raise refusal(listed.status, listed.body)
        bases = [model for model in wire.loads(listed.body)["data"] if not model.get("parent")]
        if not bases:
            raise EngineError(f"the vLLM server at {url} lists no model")
        base = bases[0]
        return ServerFacts(
            version=version,
            model=str(base["id"]),
            origin=str(base.get("root") or ""),
            context_window=int(base["max_model_len"]),
        )

    async def check(self, connections: Connections, facts: ServerFacts) -> None:
        """Asks for what is needed and a default server refuses, and whether its log-probs are at the temperature."""
        cold, warm = [await self._probe(connections, facts, temperature) for temperature in (PROBE_T, 1.0)]
        if not are_at_temperature(cold, warm):
            raise ConfigError(
                "the vLLM server reports log-probs before temperature: start it with --logprobs-mode processed_logprobs"
            )

    async def _probe(self, connections: Connections, facts: ServerFacts, temperature: float) -> Mapping[int, float]:
        params = {"max_tokens": 1, "temperature": temperature, "logprobs": MAX_LOGPROBS, "seed": 1, "detokenize": False}
        body = {"model": facts.model, "token_ids": PROBE_IDS, "sampling_params": params, "priority": 1}
        answer = await connections.look(GENERATE, wire.dumps(body))
        if answer.status == 200:
            (entry,) = wire.loads(answer.body)["choices"][0]["logprobs"]["content"]
            return {one["token_id"]: one["logprob"] for one in entry["top_logprobs"]}
        said = str(refusal(answer.status, answer.body))
        if answer.status in (403, 404):
            flag = "--enable-scale-out: its token endpoint is off"
        elif "priority" in said.lower():
            flag = "--scheduling-policy priority: whatever a person waits for comes first"
        elif "logprobs" in said.lower():
            flag = f"--max-logprobs {MAX_LOGPROBS}"
        elif answer.status >= 500:
            raise EngineLost(said)
        else:
            raise ConfigError(f"the vLLM server refused a first question: {said}")
        raise ConfigError(f"start the vLLM server at {connections.address} with {flag} ({said})")


class _VllmReader:
    """One answer. Its last delta waits for the event with the usage, which says what was cached."""

    def __init__(self, version: str, top: int) -> None:
        self._version = version
        self._top = top
        self._last: Delta | None = None

    def is_last(self, event: Json) -> bool:
        return not event["choices"]

    def read(self, event: Json) -> Delta | None:
        if self.is_last(event):
            return self._end(event)
        choice = event["choices"][0]
        if self._last is not None:
            raise EngineError("vLLM went on after the end of its answer")
        if choice["finish_reason"] not in (None, "stop", "length", "abort"):
            raise EngineError(f"vLLM ended an answer with {choice['finish_reason']!r}")
        ids = choice["token_ids"]
        content = choice["logprobs"]["content"] if ids else []
        if [entry["token_id"] for entry in content] != ids:
            raise EngineError("vLLM did not report one log-prob for each token")
        if len(choice.get("weight_versions") or ()) > 1:
            raise EngineError("other weights were pushed into the vLLM server during the answer")
        entries = [((top["token_id"], top) for top in entry["top_logprobs"]) for entry in content]
        delta = Delta(
            token_ids=tuple(ids),
            logprobs=tuple([_logprob(entry["logprob"]) for entry in content]),
            version=self._version,
            top_logprobs=tuple(_best(entry, self._top) for entry in entries) if self._top else None,
            finish_reason=choice["finish_reason"],
        )
        if delta.finish_reason is None:
            return delta
        self._last = delta
        return None

    def _end(self, event: Json) -> Delta:
        if self._last is None:
            raise EngineLost("vLLM ended the answer without a finish reason")
        details = (event.get("usage") or {}).get("prompt_tokens_details") or {}
        last = self._last
        return Delta(
            token_ids=last.token_ids,
            logprobs=last.logprobs,
            version=last.version,
            top_logprobs=last.top_logprobs,
            finish_reason=last.finish_reason,
            num_cached_tokens=int(details.get("cached_tokens") or 0),
        )


def _logprob(value: float | None) -> float:
    if value is None or value < _MISSING:
        raise EngineError("vLLM reported no log-prob for a token: the model's weights or the version's are broken")
    return value


def _best(entries: Iterable[tuple[int, Mapping[str, Json]]], top: int) -> tuple[TokenLogprob, ...]:
    """The `top` most likely ones; the token itself may be among them."""
    ranked = sorted(entries, key=lambda entry: -entry[1]["logprob"])[:top]
    return tuple([TokenLogprob(token, entry["logprob"]) for token, entry in ranked])
