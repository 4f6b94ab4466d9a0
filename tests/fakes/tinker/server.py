"""The protocol: sessions, runs, futures and checkpoints over HTTP, as the SDK of these types asks for them.

    python -m tests.fakes.tinker.server --model FOLDER --state FOLDER --port 8000 --name NAME

Checkpoints and the diary of what was computed survive a restart; sessions, runs and futures do not. What goes wrong is
ordered at POST /control: {"down": true} answers nothing, {"slow_s": 0.5} answers late, {"faults": [{"route": "asample",
"status": 429, "times": 2}]} refuses, a status of 0 drops the connection, "fails": {"optim_step": "why"} fails futures,
"without": ["topk", "targets", "prompt_logprobs", "ppo", "wide"] cannot do these things.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import time
import uuid
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from aiohttp import web
from tinker import types
from tinker.proto import tinker_public_pb2 as pb
from tinker.proto.response_conv import _tensor_data_from_proto

from tests.fakes.tinker.model import Run, TinyModel, gathered, loss_of

KEY = "tml-test"
_POLL_S = 1.0
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(eq=False)
class Model:
    """A training run and the requests that wait for their turn."""

    run: Run | None = None
    next_seq: int = 1
    waiting: dict[int, Callable[[], Any]] = field(default_factory=dict)


class Service:
    def __init__(self, folder: Path, state: Path, *, name: str, key: str = KEY) -> None:
        torch.set_num_threads(1)
        self.model, self.name, self.key, self.state = TinyModel(folder), name, key, state
        state.mkdir(parents=True, exist_ok=True)
        self.epoch = uuid.uuid4().hex[:6]
        self.control: dict[str, Any] = {}
        self.sessions: set[str] = set()
        self.models: dict[str, Model] = {}
        self.samplers: dict[str, dict[str, torch.Tensor] | None] = {}
        self.futures: dict[str, asyncio.Future[Any]] = {}
        self.worker = ThreadPoolExecutor(1)
        self.num = 0
        self.up = asyncio.Event()
        self.up.set()

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
        await asyncio.sleep(self.control.get("slow_s", 0.0))
        for fault in self.control.get("faults", ()):
            if fault["route"] == route and fault["times"] > 0:
                fault["times"] -= 1
                if fault["status"] == 0:
                    assert request.transport is not None
                    request.transport.abort()
                raise _refused(fault["status"] or 503, "ordered by the test")
        if request.headers.get("X-API-Key") != self.key:
            raise _refused(401, "invalid API key")
        return await handler(request)

    async def ordered(self, request: web.Request) -> web.Response:
        self.control = {**self.control, **await request.json()}
        return web.json_response({})

    async def diary(self, request: web.Request) -> web.Response:
        path = self.state / "diary.jsonl"
        return web.json_response([json.loads(line) for line in path.read_text().splitlines()] if path.exists() else [])

    # -- sessions ----------------------------------------------------------------------------------------------------

    async def config(self, request: web.Request) -> web.Response:
        return _json(types.ClientConfigResponse())

    async def dynamic(self, request: web.Request) -> web.Response:
        return _json(types.ClientDynamicConfigResponse(sample_cancel_enabled=True))

    async def capabilities(self, request: web.Request) -> web.Response:
        one = types.SupportedModel(model_name=self.name, max_context_length=self.model.window)
        return _json(types.GetServerCapabilitiesResponse(supported_models=[one]))

    async def health(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def session(self, request: web.Request) -> web.Response:
        asked = types.CreateSessionRequest.model_validate(await request.json())
        self.num += 1
        name = f"s{self.num}-{self.epoch}"
        self.sessions.add(name)
        self.tell("session", project=asked.project_id)
        return _json(types.CreateSessionResponse(session_id=name))

    async def heartbeat(self, request: web.Request) -> web.Response:
        asked = types.SessionHeartbeatRequest.model_validate(await request.json())
        self._known(asked.session_id)
        return web.json_response({"type": "session_heartbeat"})

    def _known(self, session: str) -> None:
        if session not in self.sessions:
            raise _refused(404, f"unknown session {session}")

    # -- runs --------------------------------------------------------------------------------------------------------

    async def create_model(self, request: web.Request) -> web.Response:
        asked = types.CreateModelRequest.model_validate(await request.json())
        self._known(asked.session_id)
        if asked.base_model != self.name:
            raise _refused(400, f"base model {asked.base_model} is not supported")
        name, model = f"{asked.session_id}:train:{asked.model_seq_id}", Model()
        form = asked.lora_config
        assert form is not None
        if form.train_unembed:
            raise _refused(400, "this model has tied embeddings: train_unembed is not supported")
        self.models[name] = model

        def make() -> types.CreateModelResponse:
            model.run = self.model.new_run(
                rank=form.rank, seed=form.seed or 0, attn=form.train_attn, mlp=form.train_mlp
            )
            self.tell("create", model=name, rank=form.rank, seed=form.seed)
            return types.CreateModelResponse(model_id=name)

        return self._later(f"{name}:0", make)

    async def load(self, request: web.Request) -> web.Response:
        asked = types.LoadWeightsRequest.model_validate(await request.json())
        assert asked.session_id is not None
        self._known(asked.session_id)
        name, model = f"{asked.session_id}:train:{asked.model_seq_id}", Model()
        folder = self._folder(asked.path)
        self.models[name] = model

        def make() -> types.LoadWeightsResponse:
            model.run = Run.load(folder, whole=asked.optimizer)
            self.tell("load", model=name, path=asked.path, optimizer=asked.optimizer)
            return types.LoadWeightsResponse(path=asked.path, model_id=name, type="load_weights")

        return self._later(f"{name}:0", make)

    async def info(self, request: web.Request) -> web.Response:
        asked = types.GetInfoRequest.model_validate(await request.json())
        run = self._model(asked.model_id).run
        assert run is not None
        data = types.ModelData(arch="llama", model_name=self.name)
        return _json(types.GetInfoResponse(model_data=data, model_id=asked.model_id, is_lora=True, lora_rank=run.rank))

    def _model(self, name: str) -> Model:
        if name not in self.models:
            raise _refused(404, f"unknown model {name}")
        return self.models[name]

    async def forward_backward(self, request: web.Request) -> web.Response:
        asked = pb.ForwardBackwardRequest()
        asked.ParseFromString(await request.read())
        run_of = self._model(asked.model_id)
        config = dict(asked.loss_fn_config)
        without = self.control.get("without", ())
        if asked.loss_fn in without:
            raise _refused(400, f"loss_fn {asked.loss_fn} is not supported")

        def compute() -> bytes:
            run = run_of.run
            assert run is not None
            total, outputs, tokens = 0.0, [], 0
            read: list[list[int]] = []
            for datum in asked.data:
                ids = np.frombuffer(b"".join(one.encoded_text.tokens for one in datum.model_input), np.int32).tolist()
                inputs = {name: _tensor(one) for name, one in datum.loss_fn_inputs.items()}
                if inputs["target_tokens"].dim() == 2 and "wide" in without:
                    raise ValueError("target_tokens must have one dimension")
                assert len(ids) == len(inputs["target_tokens"]), "targets and inputs are aligned"
                with torch.set_grad_enabled(not asked.forward_only):
                    logprobs = gathered(self.model.logprobs(ids, run.weights), inputs["target_tokens"])
                    loss = loss_of(asked.loss_fn, logprobs, inputs, config)
                if not asked.forward_only:
                    loss.backward()
                total += float(loss.detach())
                tokens += len(ids)
                outputs.append(logprobs.detach())
                read.append(ids)
            kind = "forward" if asked.forward_only else "backward"
            self.tell(kind, model=asked.model_id, loss=asked.loss_fn, num=len(asked.data), tokens=tokens, read=read)
            return _outputs(outputs, {"loss:sum": total})

        return self._in_turn(asked.model_id, asked.seq_id, "forward_backward", compute)

    async def optim(self, request: web.Request) -> web.Response:
        asked = types.OptimStepRequest.model_validate(await request.json())
        how, model = asked.optim_params, self._model(asked.model_id)
        assert isinstance(how, types.AdamParams)

        def compute() -> types.OptimStepResponse:
            assert model.run is not None
            metrics = model.run.move(
                lr=how.learning_rate,
                beta1=how.beta1,
                beta2=how.beta2,
                eps=how.eps,
                decay=how.weight_decay,
                clip=how.grad_clip_norm,
            )
            self.tell("optim", model=asked.model_id, lr=how.learning_rate)
            return types.OptimStepResponse(metrics=metrics)

        return self._in_turn(asked.model_id, asked.seq_id, "optim_step", compute)

    async def save(self, request: web.Request) -> web.Response:
        asked = types.SaveWeightsRequest.model_validate(await request.json())
        uri = f"tinker://{asked.model_id}/weights/{asked.path}"

        def compute() -> types.SaveWeightsResponse:
            self._save(asked.model_id, uri, whole=True)
            return types.SaveWeightsResponse(path=uri, type="save_weights")

        return self._in_turn(asked.model_id, asked.seq_id, "save_weights", compute)

    async def save_for_sampler(self, request: web.Request) -> web.Response:
        asked = types.SaveWeightsForSamplerRequest.model_validate(await request.json())
        uri = f"tinker://{asked.model_id}/sampler_weights/{asked.path}"

        def compute() -> Any:
            self._save(asked.model_id, uri, whole=False)
            return types.SaveWeightsForSamplerResponseInternal(path=uri, type="save_weights_for_sampler")

        return self._in_turn(asked.model_id, asked.seq_id, "save_weights_for_sampler", compute)

    def _save(self, model_id: str, uri: str, *, whole: bool) -> None:
        run = self._model(model_id).run
        assert run is not None
        folder = self._place(uri)
        shutil.rmtree(folder, ignore_errors=True)
        run.save(folder, whole=whole)
        self.tell("save", path=uri, num_steps=run.num_steps)

    def _place(self, uri: str) -> Path:
        return self.state / "checkpoints" / uri.removeprefix("tinker://").replace(":", "_")

    def _folder(self, uri: str) -> Path:
        folder = self._place(uri)
        if not folder.is_dir():
            raise _refused(404, f"no checkpoint at {uri}")
        return folder

    async def delete(self, request: web.Request) -> web.Response:
        uri = f"tinker://{request.match_info['run']}/{request.match_info['kind']}/{request.match_info['name']}"
        shutil.rmtree(self._folder(uri))
        self.tell("delete", path=uri)
        return web.Response(status=204)

    # -- sampling ----------------------------------------------------------------------------------------------------

    async def sampling_session(self, request: web.Request) -> web.Response:
        asked = types.CreateSamplingSessionRequest.model_validate(await request.json())
        self._known(asked.session_id)
        if asked.model_path is None and asked.base_model != self.name:
            raise _refused(400, f"base model {asked.base_model} is not supported")
        name = f"{asked.session_id}:sample:{asked.sampling_session_seq_id}"
        path = asked.model_path
        self.samplers[name] = None if path is None else Run.load(self._folder(path), whole=False).weights
        return _json(types.CreateSamplingSessionResponse(sampling_session_id=name))

    async def sampler(self, request: web.Request) -> web.Response:
        return _json(types.GetSamplerResponse(sampler_id=request.match_info["name"], base_model=self.name))

    async def asample(self, request: web.Request) -> web.Response:
        asked = types.SampleRequest.model_validate(await request.json())
        name = asked.sampling_session_id
        if name not in self.samplers:
            raise _refused(404, f"unknown sampling session {name}")
        without = self.control.get("without", ())
        if asked.topk_prompt_logprobs and "topk" in without:
            raise _refused(400, "topk_prompt_logprobs is not supported")
        if asked.target_prompt_logprobs is not None and "targets" in without:
            raise _refused(400, "target_prompt_logprobs is not supported")
        if asked.prompt_logprobs and "prompt_logprobs" in without:
            raise _refused(400, "prompt_logprobs is not supported")
        weights = self.samplers[name]
        ids = [token for chunk in asked.prompt.chunks for token in chunk.tokens]
        if len(ids) + (asked.sampling_params.max_tokens or 1) > self.model.window + 1:
            raise _refused(400, "the prompt and max_tokens exceed the context window")
        ask_id = f"{name}:{asked.seq_id}"
        sequences = [f"{ask_id}:{number}" for number in range(asked.num_samples)]
        return self._later(ask_id, lambda: self._sampled(asked, ids, weights), sample_sequence_ids=sequences)

    @torch.no_grad()
    def _sampled(self, asked: types.SampleRequest, ids: list[int], weights: Any) -> bytes:
        how, answer = asked.sampling_params, pb.SampleResponse()
        stop = [how.stop] if isinstance(how.stop, int) else list(how.stop or ())
        for _ in range(asked.num_samples):
            said, told, likely, why = self.model.draw(
                ids,
                weights,
                max_tokens=how.max_tokens or 1,
                temperature=how.temperature,
                top_k=how.top_k,
                top_p=how.top_p,
                seed=how.seed,
                stop=stop,
                topk=asked.topk_sample_logprobs,
            )
            one = answer.sequences.add()
            one.tokens, one.logprobs = np.array(said, np.int32).tobytes(), np.array(told, np.float32).tobytes()
            one.stop_reason = pb.STOP_REASON_STOP if why == "stop" else pb.STOP_REASON_LENGTH
            if likely:
                _fill(one.topk_sampled_logprobs, likely, asked.topk_sample_logprobs)
            is_scored = bool(asked.prompt_logprobs) or asked.target_prompt_logprobs is not None
            self.tell("sample", prompt=len(ids), said=len(said), read=[ids], is_scored=is_scored)
        if asked.prompt_logprobs or asked.target_prompt_logprobs is not None:
            logprobs = self.model.logprobs(ids, weights)
            told = [float("nan"), *(float(logprobs[at - 1, token]) for at, token in enumerate(ids) if at)]
            last = asked.prompt_logprobs_last_n or len(ids) - 1
            told = [value if at >= len(ids) - last else float("nan") for at, value in enumerate(told)]
            answer.prompt_logprobs = np.array(told, np.float32).tobytes()
            answer.prompt_cache_hit_tokens = len(ids) - last
            if (top := asked.topk_prompt_logprobs) > 0:
                values, at = logprobs.topk(top)
                rows = [list(zip(at[i - 1].tolist(), values[i - 1].tolist(), strict=True)) for i in range(len(ids))]
                _fill(answer.topk_prompt_logprobs, rows, top)
            if asked.target_prompt_logprobs is not None:
                self._targets(answer, asked.target_prompt_logprobs, logprobs)
        return bytes(answer.SerializeToString())

    def _targets(self, answer: pb.SampleResponse, asked: Any, logprobs: torch.Tensor) -> None:
        assert asked.sparse_crow_indices is None, "this server reads dense targets"
        wanted = torch.tensor(asked.data, dtype=torch.int64).reshape(asked.shape)
        assert len(wanted) == len(logprobs) - 1
        found = logprobs[:-1].gather(-1, wanted.clamp(min=0)).masked_fill(wanted < 0, 0.0)
        answer.target_prompt_logprobs.dtype = pb.DTYPE_FLOAT32
        answer.target_prompt_logprobs.shape.extend(asked.shape)
        answer.target_prompt_logprobs.dense = found.numpy().astype(np.float32).tobytes()

    # -- futures -----------------------------------------------------------------------------------------------------

    def _in_turn(self, name: str, seq: int | None, route: str, compute: Callable[[], Any]) -> web.Response:
        """Requests of a run are computed in the order of their numbers, and a number that comes again is the same."""
        model = self._model(name)
        assert seq is not None
        ask_id = f"{name}:{seq}"
        if ask_id not in self.futures:
            self.futures[ask_id] = asyncio.get_running_loop().create_future()
            model.waiting[seq] = self._failing(route, compute)
            while model.next_seq in model.waiting:
                at = model.next_seq
                self._compute(self.futures[f"{name}:{at}"], model.waiting.pop(at))
                model.next_seq += 1
        return _json(types.UntypedAPIFuture(request_id=ask_id))

    def _later(self, ask_id: str, compute: Callable[[], Any], **also: Any) -> web.Response:
        if ask_id not in self.futures:
            self.futures[ask_id] = asyncio.get_running_loop().create_future()
            self._compute(self.futures[ask_id], self._failing("asample", compute))
        return _json(types.UntypedAPIFuture(request_id=ask_id, **also))

    def _failing(self, route: str, compute: Callable[[], Any]) -> Callable[[], Any]:
        def run() -> Any:
            if why := self.control.get("fails", {}).pop(route, None):
                raise ValueError(why)
            return compute()

        return run

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
        asked = types.FutureRetrieveRequest.model_validate(await request.json())
        future = self.futures.get(asked.request_id)
        if future is None:
            raise _refused(404, f"unknown request {asked.request_id}")
        await asyncio.wait((future,), timeout=_POLL_S)
        if not future.done():
            again = types.TryAgainResponse(request_id=asked.request_id, queue_state="active")
            return web.json_response(again.model_dump(mode="json"), status=408)
        value = future.result()
        if isinstance(value, Exception):
            return web.json_response({"error": str(value), "category": "server"})
        if isinstance(value, bytes):
            return web.Response(body=value, content_type="application/x-protobuf")
        return _json(value)

    async def cancel(self, request: web.Request) -> web.Response:
        return web.json_response({})

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self.guard], client_max_size=1 << 28)
        post, get = app.router.add_post, app.router.add_get
        post("/control", self.ordered)
        get("/diary", self.diary)
        api = "/api/v1"
        post(f"{api}/client/config", self.config)
        post(f"{api}/client/dynamic_config", self.dynamic)
        get(f"{api}/get_server_capabilities", self.capabilities)
        get(f"{api}/healthz", self.health)
        post(f"{api}/create_session", self.session)
        post(f"{api}/session_heartbeat", self.heartbeat)
        post(f"{api}/create_model", self.create_model)
        post(f"{api}/load_weights", self.load)
        post(f"{api}/get_info", self.info)
        post(f"{api}/forward_backward", self.forward_backward)
        post(f"{api}/optim_step", self.optim)
        post(f"{api}/save_weights", self.save)
        post(f"{api}/save_weights_for_sampler", self.save_for_sampler)
        post(f"{api}/create_sampling_session", self.sampling_session)
        get(f"{api}/samplers/{{name}}", self.sampler)
        post(f"{api}/asample", self.asample)
        post(f"{api}/retrieve_future", self.retrieve)
        post(f"{api}/cancel_future", self.cancel)
        app.router.add_delete(f"{api}/training_runs/{{run}}/checkpoints/{{kind}}/{{name}}", self.delete)
        return app


def _refused(status: int, why: str) -> web.HTTPException:
    made = {400: web.HTTPBadRequest, 401: web.HTTPUnauthorized, 404: web.HTTPNotFound, 429: web.HTTPTooManyRequests}
    kind = made.get(status)
    body = json.dumps({"detail": why})
    if kind is None:
        error = web.HTTPServiceUnavailable(text=body, content_type="application/json")
        error.set_status(status)
        return error
    return kind(text=body, content_type="application/json")


def _json(model: Any) -> web.Response:
    return web.json_response(model.model_dump(mode="json"))


def _tensor(raw: pb.Tensor) -> torch.Tensor:
    found = _tensor_data_from_proto(raw)
    made: torch.Tensor = found.to_torch()  # dense or sparse: the SDK sends what is shorter
    return made


def _fill(message: pb.TopkLogprobs, rows: list[list[tuple[int, float]]], k: int) -> None:
    message.token_ids = np.array([[token for token, _ in row] for row in rows], np.int32).tobytes()
    message.logprobs = np.array([[value for _, value in row] for row in rows], np.float32).tobytes()
    message.k, message.length = k, len(rows)


def _outputs(outputs: list[torch.Tensor], metrics: dict[str, float]) -> bytes:
    answer = pb.ForwardBackwardOutput(loss_fn_output_type="CrossEntropyOutput", metrics=metrics)
    for one in outputs:  # a record for each: their widths differ
        record = answer.loss_fn_outputs.add()
        record.num_datums = 1
        batched = record.fields["logprobs"]
        data = one.numpy().astype(np.float32).tobytes()
        batched.data, batched.dtype = data, pb.DTYPE_FLOAT32
        batched.offsets = np.array([0, len(data)], np.int64).tobytes()
        batched.trailing_shape.extend(one.shape[1:])
    return bytes(answer.SerializeToString())


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
