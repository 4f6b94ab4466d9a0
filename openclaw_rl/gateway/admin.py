"""The admin socket: how a command changes something while the control process, the only writer, is running.

A Unix socket that only its owner can open; there is no other authentication and none is needed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable

import orjson
from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from openclaw_rl.errors import OpenClawError
from openclaw_rl.gateway.auth import KeyRing, new_key
from openclaw_rl.protocols import Store

USER_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class _NewKey(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    user: str = Field(pattern=f"^{USER_NAME.pattern}$")
    label: str = Field(default="", max_length=200)


class _Rollback(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    line: str = Field(pattern=f"^{USER_NAME.pattern}$")
    number: int = Field(ge=0)


def build_admin(
    store: Store,
    keys: KeyRing,
    roll_back: Callable[[str, int], Awaitable[str]] | None = None,
    train: Callable[[], Awaitable[object]] | None = None,
) -> web.Application:
    """The routes that commands use. `roll_back` puts a line's version live and returns its label.

    `train` takes every step that there are samples for, without waiting for more; None: this server does not train.
    """

    async def add_key(request: web.Request) -> web.Response:
        try:
            asked = _NewKey.model_validate_json(await request.read())
        except ValidationError as error:
            return web.json_response({"error": str(error)}, status=400)
        key, secret = new_key(asked.user, time.time(), label=asked.label)
        await store.put_key(key)
        keys.add(key)
        return web.Response(body=orjson.dumps({"id": key.id, "key": secret}), content_type="application/json")

    async def revoke_key(request: web.Request) -> web.Response:
        key_id = request.match_info["id"]
        if not keys.remove(key_id):
            return web.json_response({"error": f"there is no key {key_id!r}"}, status=404)
        await store.revoke_key(key_id, time.time())
        return web.json_response({"id": key_id})

    async def put_live(request: web.Request) -> web.Response:
        try:
            asked = _Rollback.model_validate_json(await request.read())
        except ValidationError as error:
            return web.json_response({"error": str(error)}, status=400)
        assert roll_back is not None
        try:
            return web.json_response({"version": await roll_back(asked.line, asked.number)})
        except OpenClawError as error:
            return web.json_response({"error": str(error)}, status=409)

    async def training(request: web.Request) -> web.Response:
        return web.json_response({"trains": train is not None})

    async def train_now(request: web.Request) -> web.Response:
        if train is None:
            return web.json_response({"error": "this server does not train"}, status=409)
        try:
            await train()
        except OpenClawError as error:
            return web.json_response({"error": str(error)}, status=409)
        return web.json_response({})

    app = web.Application()
    app.router.add_get("/train", training)
    app.router.add_post("/train", train_now)
    if roll_back is not None:
        app.router.add_post("/rollback", put_live)
    app.router.add_post("/keys", add_key)
    app.router.add_delete("/keys/{id}", revoke_key)
    return app
