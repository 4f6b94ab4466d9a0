"""An OpenAI-compatible server that judges by a few words and takes as long as it is told: a stand-in for a large model.

Reads the prompts of `openclaw_rl/judge/prompts` and answers in the form that they ask for.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import orjson
from aiohttp import web

_NEXT_STATE = re.compile(r"<<<BEGIN next state.*?>>>\n(.*?)\n<<<END", re.DOTALL)
_DISPLEASED = re.compile(r"wrong|redo|again|incorrect|mistake|not what|correct it|shorter", re.IGNORECASE)


class JudgeServer:
    """Counts the votes that it was asked for; `delay_s` may change while it runs. `always`: the one score it gives."""

    def __init__(self, *, delay_s: float = 0.0, always: int | None = None) -> None:
        self.delay_s = delay_s
        self._always = always
        self.num_votes = 0

    @asynccontextmanager
    async def listening(self, port: int = 0) -> AsyncIterator[str]:
        """Its base URL, while it listens."""
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._vote)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", port).start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        finally:
            await runner.cleanup()

    async def _vote(self, request: web.Request) -> web.Response:
        prompt: str = orjson.loads(await request.read())["messages"][-1]["content"]
        self.num_votes += 1
        await asyncio.sleep(self.delay_s)
        answer = {"choices": [{"message": {"content": self._answer(prompt)}, "finish_reason": "stop"}]}
        return web.Response(body=orjson.dumps(answer), content_type="application/json")

    def _answer(self, prompt: str) -> str:
        said = "\n".join(_NEXT_STATE.findall(prompt))
        if prompt.rstrip().endswith("the hint in its marks."):
            hint = "\\boxed{1}\n[HINT_START]\nAnswer more briefly.\n[HINT_END]"
            return hint if "shorter" in said else "No wish is stated.\n\\boxed{-1}"
        score = self._always if self._always is not None else (-1 if _DISPLEASED.search(said) else 1)
        return f"The next state tells.\n\\boxed{{{score}}}"
