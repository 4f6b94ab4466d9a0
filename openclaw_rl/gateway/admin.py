"""The admin socket: how a command changes something while the control process, the only writer, is running.

A Unix socket that only its owner can open; there is no other authentication and none is needed.
"""

from __future__ import annotations

import re
import time

import orjson
from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from openclaw_rl.gateway.auth import KeyRing, new_key
from openclaw_rl.protocols import Store

USER_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class _NewKey(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    user: str = Field(pattern=f"^{USER_NAME.pattern}$")
    label: str = Field(default="", max_length=200)


def build_admin(store: Store, keys: KeyRing) -> web.Application:
    """The routes that commands use."""

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

    app = web.Application()
    app.router.add_post("/keys", add_key)
    app.router.add_delete("/keys/{id}", revoke_key)
    return app
