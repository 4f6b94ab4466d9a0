"""vLLM's and SGLang's protocols over an engine of ours: made from their request and response types, not from them.

What is answered is what the engine computes; how it is asked and written is theirs: routes, names, where a log-prob
stands, what an unknown adapter is. `kill` drops every connection, as a process that dies does; `start` begins anew on
the same port with nothing loaded. Shapes: vLLM 0.32 `entrypoints/scale_out/token_in_token_out/protocol.py`, SGLang
0.5.23 `srt/managers/io_struct.py` and `entrypoints/http_server.py`.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

from aiohttp import web
from tokenizers import Tokenizer

from openclaw_rl.engine.worker.wire import merge
from openclaw_rl.errors import EngineRefused
from openclaw_rl.model.folder import folder_sha256
from openclaw_rl.protocols import Engine
from openclaw_rl.types import (
    Delta,
    GenerateRequest,
    Json,
    Publication,
    Sampling,
    Scored,
    ScoreRequest,
    TokenLogprob,
    WeightsRef,
)


class ForeignServer(ABC):
    """One server, with switches for what may be wrong with it."""

    guarded: tuple[str, ...] = ("/",)
    """The paths that ask for a key."""

    def __init__(self, make_engine: Callable[[], Engine], *, tokenizer: Path, name: str) -> None:
        self._make_engine = make_engine
        self._tokenizer = Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
        self.name = name
        self.origin = f"/models/{name}"
        self.key = ""
        self.max_rank = 16
        self.has_lora = True
        self.at_temperature = True
        self.version = ""
        self.adapters: dict[str, str] = {}
        self.num_loads = 0
        self.port = 0
        self.is_failing = False
        """It fails after the first tokens of an answer."""
        self.is_dying = False
        """Its model died, and it will too; until then it says so."""
        self.rotate = 0
        """What is added to each token id by its tokenizer: another one than ours."""
        self._engine: Engine | None = None
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._engine = self._make_engine()
        self.adapters = {}
        app = web.Application(middlewares=[self._guard], client_max_size=1 << 26)
        routes = [web.get("/health", self._health), web.get("/v1/models", self._models)]
        app.add_routes([*routes, web.post("/tokenize", self._tokenize), *self._routes()])
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True).start()
        self.port = self._runner.addresses[0][1]

    async def kill(self) -> None:
        assert self._runner is not None
        assert self._engine is not None
        server = self._runner.server
        assert server is not None
        for handler in list(server.connections):
            if handler.transport is not None:
                handler.transport.abort()
        await self._runner.cleanup()
        await self._engine.close()
        self._runner = self._engine = None

    async def close(self) -> None:
        if self._runner is not None:
            await self.kill()

    @abstractmethod
    def _routes(self) -> list[web.RouteDef]: ...

    @property
    def engine(self) -> Engine:
        assert self._engine is not None
        return self._engine

    @web.middleware
    async def _guard(self, request: web.Request, handler: Callable[..., Json]) -> web.StreamResponse:
        is_guarded = request.path.startswith(self.guarded)
        if self.key and is_guarded and request.headers.get("authorization") != f"Bearer {self.key}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(status=503 if self.is_dying else 200)

    async def _models(self, _: web.Request) -> web.Response:
        window = (await self.engine.state()).context_window
        base = {"id": self.name, "object": "model", "root": self.origin, "parent": None, "max_model_len": window}
        loaded = [{"id": name, "root": path, "parent": self.name} for name, path in self.adapters.items()]
        return web.json_response({"object": "list", "data": [base, *loaded]})

    async def _tokenize(self, request: web.Request) -> web.Response:
        ids = self._tokenizer.encode((await request.json())["prompt"], add_special_tokens=False).ids
        return web.json_response({"count": len(ids), "tokens": [token + self.rotate for token in ids]})

    def version_of(self, model: str | None) -> str:
        return "v0" if model in (None, self.name) else f"v-{model}"

    async def load(self, name: str, path: str) -> str:
        """Why it was not loaded; empty if it was."""
        if not self.has_lora:
            return "LoRA is not enabled. Use `--enable-lora` to enable LoRA."
        if name in self.adapters:
            return f"The lora adapter '{name}' has already been loaded."
        folder = Path(path)
        if not folder.is_dir():
            return f"Loading lora {name} failed: No adapter found for {path}"
        rank = json.loads((folder / "adapter_config.json").read_text())["r"]
        if rank > self.max_rank:
            return f"LoRA rank {rank} is greater than max_lora_rank {self.max_rank}."
        weights = WeightsRef.of_folder(folder, folder_sha256(folder))
        try:
            await self.engine.publish(Publication(version=self.version_of(name)[:60], weights=weights, live=False))
        except EngineRefused as error:
            return str(error)
        self.adapters[name] = path
        self.num_loads += 1
        return ""

    async def ask(self, raw: Json, *, ids: list[int], model: str | None, salt: str, params: Json) -> GenerateRequest:
        temperature = params["temperature"]
        return GenerateRequest(
            request_id="r",
            token_ids=ids,
            sampling=Sampling(
                max_tokens=params["max_tokens"],
                temperature=temperature if self.at_temperature else 1.0,
                top_p=params.get("top_p", 1.0),
                top_k=max(0, params.get("top_k", 0)),
                seed=params.get("seed"),
                top_logprobs=min(20, params["top"]),
            ),
            stop_token_ids=tuple(params.get("stop_token_ids", ())),
            version=self.version_of(model)[:60],
            priority=raw.get("priority", 0),
            exact=True,
            cache_salt=salt,
        )

    async def scores(self, ids: list[int], start: int, model: str | None, top: int, salt: str) -> Scored:
        (scored,) = await self.engine.score(
            ScoreRequest(
                request_id="s",
                sequences=(tuple(ids),),
                starts=(start,),
                top_logprobs=top,
                version=self.version_of(model)[:60],
                cache_salt=salt,
            )
        )
        return scored


async def streamed(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    return response


class SglangServer(ForeignServer):
    """Chunks are cumulative unless `incremental`."""

    incremental = False

    def _routes(self) -> list[web.RouteDef]:
        self.version = self.version or "0.5.23"
        return [
            web.get("/server_info", self._server_info),
            web.get("/model_info", self._model_info),
            web.post("/generate", self._generate),
            web.post("/load_lora_adapter", self._load),
            web.post("/unload_lora_adapter", self._unload),
        ]

    async def _server_info(self, _: web.Request) -> web.Response:
        return web.json_response({"version": self.version})

    async def _model_info(self, _: web.Request) -> web.Response:
        return web.json_response({"model_path": self.origin, "is_generation": True, "weight_version": "default"})

    async def _load(self, request: web.Request) -> web.Response:
        raw = await request.json()
        wrong = await self.load(raw["lora_name"], raw["lora_path"])
        body = {"success": not wrong, "error_message": wrong or None, "loaded_adapters": self.adapters}
        return web.json_response(body, status=400 if wrong else 200)

    async def _unload(self, request: web.Request) -> web.Response:
        name = (await request.json())["lora_name"]
        is_there = self.adapters.pop(name, None) is not None
        return web.json_response({"success": is_there, "error_message": None}, status=200 if is_there else 400)

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        raw = await request.json()
        ids, params, model = raw["input_ids"], raw["sampling_params"], raw.get("lora_path")
        salt, top = raw.get("extra_key", ""), raw.get("top_logprobs_num", 0)
        if model is not None and model not in self.adapters:
            return web.json_response({"error": {"message": f"{model} is not loaded"}}, status=400)
        if params["max_new_tokens"] == 0:
            start = raw["logprob_start_len"] + 1
            scored = await self.scores(ids, start, model, top, salt)
            rows = [[None, ids[start - 1], None], *_entries(scored.logprobs, ids[start:])]
            meta = {**self._meta(0, None), "input_token_logprobs": rows}
            if top:
                meta["input_top_logprobs"] = [None, *_tops(scored.top_logprobs)]
            return web.json_response({"text": "", "output_ids": [], "meta_info": meta})
        names = {"temperature": 1.0, "max_tokens": params["max_new_tokens"], "top": top, **params}
        if "sampling_seed" in params:
            names["seed"] = params["sampling_seed"]
        asked = await self.ask(raw, ids=ids, model=model, salt=salt, params=names)
        if not raw.get("stream"):
            whole = [delta async for delta in self.engine.generate(asked)]
            return web.json_response(self._chunk(whole, whole[-1]))
        response = await streamed(request)
        seen: list[Delta] = []
        async with aclosing(self.engine.generate(asked)) as deltas:
            async for delta in deltas:
                seen.append(delta)
                chunk = json.dumps(self._chunk([delta] if self.incremental else seen, delta, sum_of=seen))
                await response.write(b"data: " + chunk.encode() + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        return response

    def _chunk(self, shown: list[Delta], last: Delta, *, sum_of: list[Delta] | None = None) -> Json:
        ids = [token for delta in shown for token in delta.token_ids]
        logprobs = [logprob for delta in shown for logprob in delta.logprobs]
        total = sum(len(delta.token_ids) for delta in sum_of or shown)
        meta = {**self._meta(total, last.finish_reason), "output_token_logprobs": _entries(logprobs, ids)}
        meta["output_top_logprobs"] = [row for delta in shown for row in _tops(delta.top_logprobs)]
        meta["cached_tokens"] = last.num_cached_tokens
        return {"text": "", "output_ids": ids, "meta_info": meta}

    def _meta(self, completion_tokens: int, finish: str | None) -> dict[str, Json]:
        reason = None if finish is None else {"type": finish}
        return {"id": "r", "finish_reason": reason, "completion_tokens": completion_tokens, "weight_version": "default"}


def _entries(logprobs: Json, ids: Json) -> list[list[Json]]:
    return [[logprob, token, None] for logprob, token in zip(logprobs, ids, strict=True)]


def _tops(tops: tuple[tuple[TokenLogprob, ...], ...] | None) -> list[list[list[Json]]]:
    return [[[top.logprob, top.token_id, None] for top in row] for row in tops or ()]


class VllmServer(ForeignServer):
    """With the switches of `vllm serve` that matter."""

    guarded = ("/v1", "/inference")
    scale_out = True
    priorities = True
    max_logprobs = 21
    tells_prompts = True
    num_prompts = 0

    def _routes(self) -> list[web.RouteDef]:
        self.version = self.version or "0.32.0"
        return [
            web.get("/version", self._version),
            web.post("/inference/v1/generate", self._generate),
            web.post("/v1/completions", self._completions),
            web.post("/v1/load_lora_adapter", self._load),
            web.post("/v1/unload_lora_adapter", self._unload),
        ]

    async def _version(self, _: web.Request) -> web.Response:
        return web.json_response({"version": self.version})

    async def _load(self, request: web.Request) -> web.Response:
        raw = await request.json()
        if wrong := await self.load(raw["lora_name"], raw["lora_path"]):
            status = 404 if "No adapter" in wrong else 400 if "already" in wrong else 500
            return web.json_response(_vllm_error(wrong, status), status=status)
        return web.Response(text=f"Success: LoRA adapter '{raw['lora_name']}' added successfully.")

    async def _unload(self, request: web.Request) -> web.Response:
        name = (await request.json())["lora_name"]
        if self.adapters.pop(name, None) is None:
            return web.json_response(_vllm_error(f"The lora adapter '{name}' cannot be found.", 404), status=404)
        return web.Response(text=f"Success: LoRA adapter '{name}' removed successfully.")

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        raw = await request.json()
        params, model, ids = raw["sampling_params"], raw["model"], raw["token_ids"]
        wanted = params.get("logprobs")
        if not self.scale_out:
            return web.json_response(_vllm_error("--enable-scale-out is needed", 403), status=403)
        if raw.get("priority") and not self.priorities:
            return web.json_response(_vllm_error("Got priority 1 but priority scheduling is off", 400), status=400)
        if wanted is not None and wanted > self.max_logprobs:
            wrong = f"Requested sample logprobs of {wanted}, which is greater than max allowed: {self.max_logprobs}"
            return web.json_response(_vllm_error(wrong, 400), status=400)
        if model != self.name and model not in self.adapters:
            return web.json_response(_vllm_error(f"The model `{model}` does not exist.", 404), status=404)
        salt = raw.get("cache_salt") or ""
        if (top := params.get("prompt_logprobs")) is not None:
            rows = await self._prompt_logprobs(ids, model, top, salt)
            return web.json_response({"prompt_logprobs": rows, "choices": []})
        asked = await self.ask(raw, ids=ids, model=model, salt=salt, params={**params, "top": wanted or 0})
        if not raw.get("stream"):
            whole = merge([delta async for delta in self.engine.generate(asked)])
            return web.json_response({"choices": [self._choice(whole, wanted)]})
        response, has_begun = await streamed(request), False
        async with aclosing(self.engine.generate(asked)) as stream:
            async for delta in stream:
                if self.is_failing and has_begun:
                    await response.write(_event(_vllm_error("EngineCore encountered an issue.", 500)))
                    break
                await response.write(_event({"request_id": "r", "choices": [self._choice(delta, wanted)]}))
                has_begun = True
                if delta.finish_reason is not None:
                    usage = {"prompt_tokens_details": {"cached_tokens": delta.num_cached_tokens}}
                    await response.write(_event({"request_id": "r", "choices": [], "usage": usage}))
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _completions(self, request: web.Request) -> web.Response:
        """Of several prompts, as its OpenAI server takes them; what they would be completed with is left out."""
        raw = await request.json()
        top = raw.get("prompt_logprobs")
        if raw["model"] != self.name:
            return web.json_response(_vllm_error(f"The model `{raw['model']}` does not exist.", 404), status=404)
        if top is not None and top > self.max_logprobs:
            wrong = f"Requested prompt logprobs of {top}, which is greater than max allowed: {self.max_logprobs}"
            return web.json_response(_vllm_error(wrong, 400), status=400)
        self.num_prompts += len(raw["prompt"])
        choices = [
            {
                "index": place,
                "text": "",
                "finish_reason": "length",
                "prompt_logprobs": await self._prompt_logprobs(ids, self.name, top, "") if self.tells_prompts else None,
            }
            for place, ids in enumerate(raw["prompt"])
        ]
        return web.json_response({"object": "text_completion", "choices": choices})

    async def _prompt_logprobs(self, ids: list[int], model: str, top: int, salt: str) -> list[Json]:
        scored = await self.scores(ids, 1, model, top, salt)
        tops = scored.top_logprobs or [()] * len(scored.logprobs)
        rows = [
            {str(t): {"logprob": p} for t, p in [(ids[i + 1], logprob), *((one.token_id, one.logprob) for one in row)]}
            for i, (logprob, row) in enumerate(zip(scored.logprobs, tops, strict=True))
        ]
        return [None, *rows]

    def _choice(self, delta: Delta, wanted: int) -> Json:
        """The sampled token stands first, and counts as one of those that were asked for."""
        content = []
        for i, (token, logprob) in enumerate(zip(delta.token_ids, delta.logprobs, strict=True)):
            tops = delta.top_logprobs[i] if delta.top_logprobs else ()
            rows = {token: logprob, **{top.token_id: top.logprob for top in tops}}
            shown = [{"token_id": t, "logprob": p} for t, p in rows.items()][: max(wanted, 1)]
            content.append({"token_id": token, "logprob": logprob, "rank": 1, "top_logprobs": shown})
        return {
            "index": 0,
            "token_ids": list(delta.token_ids),
            "logprobs": {"content": content},
            "finish_reason": delta.finish_reason,
            "weight_versions": None,
        }


def _event(raw: Json) -> bytes:
    return b"data: " + json.dumps(raw).encode() + b"\n\n"


def _vllm_error(message: str, status: int) -> Json:
    return {"error": {"message": message, "type": "Error", "param": None, "code": status}}
