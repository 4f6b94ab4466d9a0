"""The protocol: sessions, runs, futures and snapshots over HTTP, as the SDK of these types asks for them.

    python -m tests.fakes.fireworks.server --model FOLDER --state FOLDER --port 8000 --name NAME

States and the diary of what was computed survive a restart; sessions, runs and snapshots for samplers do not. What goes
wrong is ordered at POST /control: {"down": true} answers nothing, {"faults": [{"route": "optim_step", "status": 429,
"times": 2}]} refuses, {"loading": 2} answers so many questions to a fresh snapshot with 425, "most": 5 says so
many likely tokens, "without": ["echo", "likely", "wide", "ppo", "account"] cannot do these things.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
import uuid
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from aiohttp import web
from fireworks.training.sdk import types
from fireworks.training.sdk.types._pydantic_types.forward_backward_request import (
    ForwardBackwardRequest,
)
from fireworks.training.sdk.types._pydantic_types.forward_request import ForwardRequest

from tests.fakes.tinker.model import Run, TinyModel, gathered, loss_of

KEY, ACCOUNT = "fw-test", "tester"
_POLL_S = 1.0
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(eq=False)
class Model:
    """A run, or the base model alone, and the requests that wait for their turn."""

    session: str
    run: Run | None = None
    next_seq: int = 1
    waiting: dict[int, Callable[[], Any]] = field(default_factory=dict)


class Service:
    def __init__(self, folder: Path, state: Path, *, name: str) -> None:
        torch.set_num_threads(1)
        self.model, self.name, self.state = TinyModel(folder), name, state
        state.mkdir(parents=True, exist_ok=True)
        self.control: dict[str, Any] = {}
        self.sessions: set[str] = set()
        self.models: dict[str, Model] = {}
        self.snapshots: dict[str, dict[str, torch.Tensor]] = {}
        self.loading: dict[str, int] = {}
        self.futures: dict[str, asyncio.Future[Any]] = {}
        self.worker = ThreadPoolExecutor(1)

    def tell(self, event: str, **facts: Any) -> None:
        with (self.state / "diary.jsonl").open("a") as diary:
            diary.write(json.dumps({"event": event, "at": time.time(), **facts}) + "\n")

    # -- what can go wrong -------------------------------------------------------------------------------------------

    @web.middleware
    async def guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        route = request.path.rpartition("/")[2]
        if route in ("control", "diary"):
            return await handler(request)
        if self.control.get("down"):
            assert request.transport is not None
            request.transport.abort()
            raise web.HTTPServiceUnavailable
        for fault in self.control.get("faults", ()):
            if fault["route"] == route and fault["times"] > 0:
                fault["times"] -= 1
                raise _refused(fault["status"], "ordered by the test")
        if request.headers.get("X-API-Key") != KEY:
            raise _refused(401, "invalid API key")
        return await handler(request)

    async def ordered(self, request: web.Request) -> web.Response:
        self.control = {**self.control, **await request.json()}
        return web.json_response({})

    async def diary(self, request: web.Request) -> web.Response:
        path = self.state / "diary.jsonl"
        return web.json_response([json.loads(line) for line in path.read_text().splitlines()] if path.exists() else [])

    @property
    def without(self) -> list[str]:
        return list(self.control.get("without", ()))

    # -- accounts and sessions ---------------------------------------------------------------------------------------

    async def accounts(self, request: web.Request) -> web.Response:
        found = [] if "account" in self.without else [{"name": f"accounts/{ACCOUNT}"}]
        return web.json_response({"accounts": found})

    async def session(self, request: web.Request) -> web.Response:
        types.CreateSessionRequest.model_validate(await request.json())
        name = f"ts-{uuid.uuid4().hex}"
        self.sessions.add(name)
        self.tell("session", session=name)
        return _json(types.CreateSessionResponse(session_id=name))

    async def heartbeat(self, request: web.Request) -> web.Response:
        self._known((await request.json())["session_id"])
        return web.json_response({"type": "session_heartbeat"})

    async def end(self, request: web.Request) -> web.Response:
        name = request.match_info["session"]
        self._known(name)
        self.sessions.discard(name)
        self.models = {key: one for key, one in self.models.items() if one.session != name}
        self.snapshots = {key: one for key, one in self.snapshots.items() if name not in key}
        self.tell("end", session=name)
        return web.json_response({})

    def _known(self, session: str) -> None:
        if session not in self.sessions:
            raise _refused(404, f"unknown session {session}")

    # -- runs --------------------------------------------------------------------------------------------------------

    async def create_model(self, request: web.Request) -> web.Response:
        raw = await request.json()
        is_base = raw.pop("base_only", False)
        asked = types.CreateModelRequest.model_validate(raw)
        self._known(asked.session_id)
        if asked.base_model != self.name:
            raise _refused(400, f"base model {asked.base_model} is not supported")
        form, model = asked.lora_config, Model(session=asked.session_id)
        run = f"base-{uuid.uuid4().hex}" if is_base else f"run-{uuid.uuid4().hex}:train:{asked.model_seq_id}"

        def make() -> types.CreateModelResponse:
            if not is_base:
                assert form is not None
                assert form.alpha == 32, "the scale of the adapters here"
                model.run = self.model.new_run(
                    rank=form.rank, seed=form.seed or 0, attn=form.train_attn, mlp=form.train_mlp
                )
                self.tell("create", model=run, rank=form.rank, seed=form.seed)
            return types.CreateModelResponse(model_id=run)

        self.models[run] = model
        return self._later(f"{run}:0", "create_model", make)

    async def load(self, request: web.Request) -> web.Response:
        asked = types.LoadWeightsRequest.model_validate(await request.json())
        model, folder = self._model(asked.model_id), self._folder(asked.path)

        def load() -> types.LoadWeightsResponse:
            model.run = Run.load(folder, whole=asked.optimizer)
            self.tell("load", model=asked.model_id, path=asked.path, optimizer=asked.optimizer)
            return types.LoadWeightsResponse(path=asked.path, model_id=asked.model_id, type="load_weights")

        return self._in_turn(asked.model_id, asked.seq_id, "load_weights", load)

    async def weights_info(self, request: web.Request) -> web.Response:
        run = Run.load(self._folder((await request.json())["tinker_path"]), whole=False)
        told = types.WeightsInfoResponse(
            base_model=self.name,
            is_lora=True,
            lora_rank=run.rank,
            train_unembed=False,
            train_mlp=any("gate_proj" in name for name in run.weights),
            train_attn=any("q_proj" in name for name in run.weights),
        )
        return _json(told)

    def _model(self, name: str) -> Model:
        if name not in self.models:
            raise _refused(404, f"unknown model {name}")
        return self.models[name]

    async def forward(self, request: web.Request) -> web.Response:
        asked = ForwardRequest.model_validate(await request.json())
        return self._pass(asked.model_id, asked.seq_id, asked.forward_input, is_training=False)

    async def forward_backward(self, request: web.Request) -> web.Response:
        asked = ForwardBackwardRequest.model_validate(await request.json())
        return self._pass(asked.model_id, asked.seq_id, asked.forward_backward_input, is_training=True)

    def _pass(self, name: str, seq: int | None, asked: Any, *, is_training: bool) -> web.Response:
        model, without = self._model(name), self.without
        if asked.loss_fn in without:
            raise _refused(400, f"loss_fn {asked.loss_fn} is not supported")

        def compute() -> dict[str, Any]:
            weights = None if model.run is None else model.run.weights
            assert weights is not None or not is_training, "the base model is not trained"
            total, outputs, tokens = 0.0, [], 0
            for datum in asked.data:
                ids = [token for chunk in datum.model_input.chunks for token in chunk.tokens]
                inputs = {key: _tensor(one) for key, one in datum.loss_fn_inputs.items()}
                if inputs["target_tokens"].dim() == 2 and "wide" in without:
                    raise ValueError("target_tokens must have one dimension")
                with torch.set_grad_enabled(is_training):
                    logprobs = gathered(self.model.logprobs(ids, weights), inputs["target_tokens"])
                    loss = loss_of(asked.loss_fn, logprobs, inputs, asked.loss_fn_config or {})
                if is_training:
                    loss.backward()
                total, tokens = total + float(loss.detach()), tokens + len(ids)
                said = logprobs.detach()
                told = {"data": said.flatten().tolist(), "dtype": "float32", "shape": list(said.shape)}
                outputs.append({} if is_training and asked.loss_fn == "cross_entropy" else {"logprobs": told})
            kind = "backward" if is_training else "forward"
            self.tell(kind, model=name, loss=asked.loss_fn, num=len(asked.data), tokens=tokens)
            return {"loss_fn_output_type": "Output", "loss_fn_outputs": outputs, "metrics": {"loss:sum": total}}

        return self._in_turn(name, seq, "forward_backward", compute)

    async def optim(self, request: web.Request) -> web.Response:
        asked = types.OptimStepRequest.model_validate(await request.json())
        how, model = asked.adam_params, self._model(asked.model_id)

        def compute() -> types.OptimStepResponse:
            assert model.run is not None
            model.run.move(
                lr=how.learning_rate,
                beta1=how.beta1,
                beta2=how.beta2,
                eps=how.eps,
                decay=how.weight_decay,
                clip=how.grad_clip_norm,
            )
            self.tell("optim", model=asked.model_id, lr=how.learning_rate)
            return types.OptimStepResponse()

        return self._in_turn(asked.model_id, asked.seq_id, "optim_step", compute)

    async def save(self, request: web.Request) -> web.Response:
        asked = types.SaveWeightsRequest.model_validate(await request.json())
        model, path = self._model(asked.model_id), self._path(asked.model_id, asked.path)

        def compute() -> types.SaveWeightsResponse:
            assert model.run is not None
            model.run.save(self._place(path), whole=True)
            self.tell("save", path=path, num_steps=model.run.num_steps)
            return types.SaveWeightsResponse(path=path, type="save_weights")

        return self._in_turn(asked.model_id, asked.seq_id, "save_weights", compute)

    async def save_for_sampler(self, request: web.Request) -> web.Response:
        raw = await request.json()
        assert raw.pop("checkpoint_type") == "base"
        asked = types.SaveWeightsForSamplerRequest.model_validate(raw)
        model, path = self._model(asked.model_id), self._path(asked.model_id, asked.path)

        def compute() -> types.SaveWeightsForSamplerResponseInternal:
            assert model.run is not None
            full = f"accounts/{ACCOUNT}/trainingSessions/{model.session}/checkpoints/{path}"
            self.snapshots[full] = {name: one.detach().clone() for name, one in model.run.weights.items()}
            self.loading[full] = self.control.get("loading", 1)
            return types.SaveWeightsForSamplerResponseInternal(path=path, type="save_weights_for_sampler")

        return self._in_turn(asked.model_id, asked.seq_id, "save_weights_for_sampler", compute)

    def _path(self, model_id: str, name: str | None) -> str:
        return f"{ACCOUNT}/{model_id.partition(':')[0]}/{name}"

    def _place(self, path: str) -> Path:
        return self.state / "states" / path.replace("/", "_")

    def _folder(self, path: str) -> Path:
        if not (folder := self._place(path)).is_dir():
            raise _refused(404, f"no state at {path}")
        return folder

    # -- sampling ----------------------------------------------------------------------------------------------------

    async def completions(self, request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        assert asked["raw_output"], "the SDK asks so"
        name = asked["model"]
        self._known(name.split("/")[3])
        if "/checkpoints/" in name and name not in self.snapshots:
            raise _refused(404, f"no snapshot {name}")
        if self.loading.get(name, 0) > 0:
            self.loading[name] -= 1
            self.tell("loading", name=name)
            raise _refused(425, "the snapshot is being loaded")
        if "echo" in self.without and asked.get("echo"):
            raise _refused(400, "echo is not supported")
        if "likely" in self.without and asked.get("echo") and asked.get("top_logprobs"):
            raise _refused(400, "top_logprobs is not supported with echo")
        if asked.get("top_logprobs", 0) > self.control.get("most", 20):
            raise _refused(400, "top_logprobs is too large")
        if len(asked["prompt"]) + asked["max_tokens"] > self.model.window + 1:
            raise _refused(400, "the prompt and max_tokens exceed the context window")
        choice = await asyncio.get_running_loop().run_in_executor(self.worker, self._said, asked, name)
        body = f"data: {json.dumps({'id': uuid.uuid4().hex, 'choices': [choice]})}\n\ndata: [DONE]\n\n"
        return web.Response(text=body, content_type="text/event-stream")

    @torch.no_grad()
    def _said(self, asked: dict[str, Any], name: str) -> dict[str, Any]:
        ids, weights, top = asked["prompt"], self.snapshots.get(name), asked.get("top_logprobs", 0)
        said, told, _, why = self.model.draw(
            ids,
            weights,
            max_tokens=asked["max_tokens"],
            temperature=asked["temperature"],
            top_k=asked["top_k"],
            top_p=asked["top_p"],
            seed=asked.get("seed"),
            stop=(),
            topk=0,
        )
        self.tell("sample", prompt=len(ids), said=len(said))
        last = min(asked.get("echo_last", 0), len(ids) - 1) if asked.get("echo") else 0
        whole = [*ids, *said]
        logprobs, content = self.model.logprobs(whole, weights), []
        for at in range(len(ids) - last, len(whole)):
            row = logprobs[at - 1]
            drawn = told[at - len(ids)] if at >= len(ids) else None
            one: dict[str, Any] = {"logprob": float(row[whole[at]]), "sampling_logprob": drawn}
            if top:
                values, tokens = row.topk(top)
                pairs = zip(tokens.tolist(), values.tolist(), strict=True)
                one["top_logprobs"] = [{"token_id": token, "logprob": value} for token, value in pairs]
            content.append(one)
        raw = {"completion_token_ids": whole[len(ids) - last :]}
        return {"text": "", "finish_reason": why, "raw_output": raw, "logprobs": {"content": content}}

    # -- futures -----------------------------------------------------------------------------------------------------

    def _in_turn(self, name: str, seq: int | None, route: str, compute: Callable[[], Any]) -> web.Response:
        """Requests of a run are computed in the order of their numbers, and a number that comes again is the same."""
        model = self._model(name)
        assert seq is not None
        ask_id = f"{name}:{seq}"
        if ask_id not in self.futures:
            self.futures[ask_id] = asyncio.get_running_loop().create_future()
            model.waiting[seq] = compute
            while model.next_seq in model.waiting:
                at = model.next_seq
                self._compute(self.futures[f"{name}:{at}"], model.waiting.pop(at))
                model.next_seq += 1
        return _json(types.UntypedAPIFuture(request_id=ask_id))

    def _later(self, ask_id: str, route: str, compute: Callable[[], Any]) -> web.Response:
        self.futures[ask_id] = asyncio.get_running_loop().create_future()
        self._compute(self.futures[ask_id], compute)
        return _json(types.UntypedAPIFuture(request_id=ask_id))

    def _compute(self, future: asyncio.Future[Any], compute: Callable[[], Any]) -> None:
        loop = asyncio.get_running_loop()

        def done(value: Any) -> None:
            if not future.done():
                future.set_result(value)

        def run() -> None:
            try:
                found = compute()
            except Exception as error:
                found = error
            loop.call_soon_threadsafe(done, found)

        self.worker.submit(run)

    async def retrieve(self, request: web.Request) -> web.Response:
        name = (await request.json())["request_id"]
        if (future := self.futures.get(name)) is None:
            raise _refused(404, f"unknown request {name}")
        await asyncio.wait((future,), timeout=_POLL_S)
        if not future.done():
            return _json(types.TryAgainResponse(request_id=name, queue_state="active"))
        value = future.result()
        if isinstance(value, Exception):
            return web.json_response({"error": str(value), "category": "server"})
        return web.json_response(value) if isinstance(value, dict) else _json(value)

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self.guard], client_max_size=1 << 28)
        post, get = app.router.add_post, app.router.add_get
        post("/control", self.ordered)
        get("/diary", self.diary)
        get("/v1/accounts", self.accounts)
        app.router.add_delete(f"/v1/accounts/{ACCOUNT}/trainingSessions/{{session}}", self.end)
        root = "/training/v1/serverless"
        api = f"{root}/api/v1"
        post(f"{api}/create_session", self.session)
        post(f"{api}/session_heartbeat", self.heartbeat)
        post(f"{api}/create_model", self.create_model)
        post(f"{api}/weights_info", self.weights_info)
        post(f"{api}/load_weights", self.load)
        post(f"{api}/forward", self.forward)
        post(f"{api}/forward_backward", self.forward_backward)
        post(f"{api}/optim_step", self.optim)
        post(f"{api}/save_weights", self.save)
        post(f"{api}/save_weights_for_sampler", self.save_for_sampler)
        post(f"{api}/retrieve_future", self.retrieve)
        post(f"{root}/inference/v1/completions", self.completions)
        return app


def _refused(status: int, why: str) -> web.HTTPException:
    class Refusal(web.HTTPException):
        status_code = status

    return Refusal(text=json.dumps({"detail": why}), content_type="application/json")


def _json(model: Any) -> web.Response:
    return web.json_response(model.model_dump(mode="json", exclude_none=True))


def _tensor(raw: Any) -> torch.Tensor:
    kind = torch.int64 if raw.dtype == "int64" else torch.float32
    data = torch.tensor(raw.data, dtype=kind)
    if raw.sparse_crow_indices is None:
        return data.reshape(raw.shape) if raw.shape else data
    rows, columns = torch.tensor(raw.sparse_crow_indices), torch.tensor(raw.sparse_col_indices)
    return torch.sparse_csr_tensor(rows, columns, data, size=tuple(raw.shape)).to_dense()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--name", default="tiny")
    asked = parser.parse_args()

    async def serve() -> web.Application:
        return Service(asked.model, asked.state, name=asked.name).app()

    web.run_app(serve(), host="127.0.0.1", port=asked.port, print=None, access_log=None)


if __name__ == "__main__":
    main()
