"""SGLang's `/generate`: our requests in its words, and its answers in ours. Read from the types of 0.5.23.

A chunk of its stream holds the whole answer so far, or only what is new where the server was started with
`--incremental-streaming-output`; `completion_tokens` says which. Its log-probs are those at the temperature, before
top-p, top-k and min-p, and after penalties and biases. Higher priorities come first, and ours lower. An adapter that is
unloaded waits for those who use it, so it must never be asked for while generation is paused: nothing here pauses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from openclaw_rl.engine.foreign.dialect import Asking, ServerFacts, StreamReader
from openclaw_rl.engine.foreign.probing import MODELS, PROBE_IDS, PROBE_T, are_at_temperature, check_version
from openclaw_rl.engine.worker import wire
from openclaw_rl.engine.worker.connections import Connections, refusal
from openclaw_rl.errors import ConfigError, EngineError, EngineLost
from openclaw_rl.types import Delta, GenerateRequest, Json, Scored, ScoreRequest, TokenLogprob
from openclaw_rl.types.messages import SHAPING

GENERATE = "POST /generate"
_CUTS = frozenset({"top_p", "top_k", "min_p"})

Entry = Sequence[Json]
"""[log-prob, token id, text or null]"""


class SglangDialect:
    """`foreign.dialect.ServerDialect`."""

    name, pip_name = "SGLang", "sglang"
    oldest: tuple[int, ...] = (0, 5, 23)
    key_variable = "SGLANG_API_KEY"
    lora_flags = "--enable-lora --max-lora-rank and --lora-target-modules all"
    logprobs_changed_by = SHAPING - _CUTS

    def generate(self, request: GenerateRequest, *, model: str, base: str, max_tokens: int, salt: str) -> Asking:
        sampling = request.sampling
        params: dict[str, Json] = {
            "max_new_tokens": max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k or -1,
            "min_p": sampling.min_p,
            "repetition_penalty": sampling.repetition_penalty,
            "presence_penalty": sampling.presence_penalty,
            "frequency_penalty": sampling.frequency_penalty,
            "stop_token_ids": list(request.stop_token_ids),
            "ignore_eos": True,  # what ends an answer is in the request, whatever the checkpoint says
            "skip_special_tokens": False,
        }
        if sampling.logit_bias:
            params["logit_bias"] = {str(token): bias for token, bias in sampling.logit_bias.items()}
        if sampling.seed is not None:
            params["sampling_seed"] = sampling.seed
        body = {
            "rid": request.request_id,
            "input_ids": list(request.token_ids),
            "sampling_params": params,
            "return_logprob": True,
            "logprob_start_len": -1,
            "top_logprobs_num": sampling.top_logprobs,
            "return_text_in_logprobs": False,
            "stream": True,
            "priority": -request.priority,
            "extra_key": salt,
        }
        return Asking(route=GENERATE, body=_by(body, model, base))

    def reader(self, request: GenerateRequest, *, version: str) -> StreamReader:
        return _SglangReader(version, request.sampling.top_logprobs)

    def score(self, request: ScoreRequest, number: int, *, model: str, base: str, salt: str) -> Asking:
        body = {
            "rid": f"{request.request_id}-{number}",
            "input_ids": list(request.sequences[number]),
            "sampling_params": {"max_new_tokens": 0, "temperature": 1.0},
            "return_logprob": True,
            # The first token of what is returned has no log-prob.
            "logprob_start_len": request.starts[number] - 1,
            "top_logprobs_num": request.top_logprobs,
            "return_text_in_logprobs": False,
            "stream": False,
            "priority": -request.priority,
            "extra_key": salt,
        }
        return Asking(route=GENERATE, body=_by(body, model, base))

    def scored(self, raw: Json, ids: Sequence[int], start: int, *, top: int) -> Scored:
        num, meta = len(ids) - start, raw["meta_info"]
        rows: Sequence[Entry] = meta["input_token_logprobs"][-num:]
        if [row[1] for row in rows] != list(ids[start:]):
            raise EngineError("SGLang scored other tokens than those that were asked for")
        tops = tuple(_best(entries) for entries in meta["input_top_logprobs"][-num:]) if top else None
        return Scored(logprobs=tuple([_logprob(row[0]) for row in rows]), top_logprobs=tops)

    def load(self, name: str, folder: Path) -> Asking:
        return Asking(route="POST /load_lora_adapter", body={"lora_name": name, "lora_path": str(folder)})

    def unload(self, name: str) -> Asking:
        return Asking(route="POST /unload_lora_adapter", body={"lora_name": name})

    async def facts(self, connections: Connections) -> ServerFacts | None:
        """It listens before its model is loaded, and answers 503 until then."""
        url = connections.address
        answer = await connections.look("GET /server_info")
        if answer.status == 503:
            return None
        if answer.status in (401, 403):
            raise ConfigError(f"the SGLang server at {url} asks for a key: set engine.api_key to its --api-key")
        try:
            version = str(wire.loads(answer.body)["version"])
        except (ValueError, TypeError, KeyError):
            raise ConfigError(
                f"engine.url={url} is no SGLang server: GET /server_info answered {answer.status}; name the address of "
                "`sglang serve`, without /v1"
            ) from None
        check_version(self, version, str(url))
        info = wire.loads(await connections.fetch("GET /model_info"))
        models = wire.loads(await connections.fetch(MODELS))["data"]
        base = next(model for model in models if not model.get("parent"))
        return ServerFacts(
            version=version,
            model=str(base["id"]),
            origin=str(info["model_path"]),
            context_window=int(base["max_model_len"]),
        )

    async def check(self, connections: Connections, facts: ServerFacts) -> None:
        """Whether it takes token ids, priorities and salts, and reports log-probs at the temperature."""
        cold, warm = [await self._probe(connections, temperature) for temperature in (PROBE_T, 1.0)]
        if not are_at_temperature(cold, warm):
            raise ConfigError(
                "the SGLang server reports log-probs before temperature: start it without "
                "SGLANG_RETURN_ORIGINAL_LOGPROB in its environment"
            )

    async def _probe(self, connections: Connections, temperature: float) -> Mapping[int, float]:
        body = {
            "input_ids": list(PROBE_IDS),
            "sampling_params": {"max_new_tokens": 1, "temperature": temperature},
            "return_logprob": True,
            "top_logprobs_num": 20,
            "priority": -1,
        }
        answer = await connections.look(GENERATE, wire.dumps(body))
        if answer.status != 200:
            said = str(refusal(answer.status, answer.body))
            if answer.status >= 500:
                raise EngineLost(said)
            flag = "start it with --enable-priority-scheduling" if "priority" in said.lower() else "see its log"
            raise ConfigError(f"the SGLang server at {connections.address} refused a first question ({said}): {flag}")
        (tops,) = wire.loads(answer.body)["meta_info"]["output_top_logprobs"]
        return {entry[1]: entry[0] for entry in tops}


class _SglangReader:
    """One answer, and how much of it was seen."""

    def __init__(self, version: str, top: int) -> None:
        self._version = version
        self._top = top
        self._num_seen = 0
        self._weights: str | None = None

    def is_last(self, event: Json) -> bool:
        return event["meta_info"].get("finish_reason") is not None

    def read(self, event: Json) -> Delta | None:
        meta = event["meta_info"]
        finish = meta.get("finish_reason")
        kind = None if finish is None else finish["type"]
        if kind not in (None, "stop", "length", "abort"):
            raise EngineError(f"SGLang ended an answer with {kind!r}")
        weights = str(meta.get("weight_version"))
        if self._weights not in (None, weights):
            raise EngineError("other weights were pushed into the SGLang server during the answer")
        self._weights = weights
        num_new = meta["completion_tokens"] - self._num_seen
        self._num_seen += num_new
        ids = tuple(event["output_ids"][-num_new:]) if num_new else ()
        entries: Sequence[Entry] = meta["output_token_logprobs"][-num_new:] if num_new else ()
        if tuple([entry[1] for entry in entries]) != ids or len(ids) != num_new:
            raise EngineError("SGLang did not report one log-prob for each token")
        tops = meta["output_top_logprobs"][-num_new:] if num_new and self._top else ()
        if not ids and kind is None:
            return None
        return Delta(
            token_ids=ids,
            logprobs=tuple([_logprob(entry[0]) for entry in entries]),
            version=self._version,
            top_logprobs=tuple(map(_best, tops)) if self._top else None,
            finish_reason=kind,
            num_cached_tokens=int(meta.get("cached_tokens") or 0) if kind else 0,
        )


def _by(body: dict[str, Json], model: str, base: str) -> dict[str, Json]:
    """The base model is what answers where no adapter is named."""
    return body if model == base else {**body, "lora_path": model}


def _logprob(value: float | None) -> float:
    if value is None or value < -1e30:
        raise EngineError("SGLang reported no log-prob for a token: the model's weights or the version's are broken")
    return value


def _best(entries: Sequence[Entry]) -> tuple[TokenLogprob, ...]:
    return tuple([TokenLogprob(entry[1], entry[0]) for entry in entries])
