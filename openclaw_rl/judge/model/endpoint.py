"""Messages -> the answer of a model behind an OpenAI-compatible URL.

Bounded in every way: one vote has `timeout_s` in all, asks again at most `retries` times after a failure of the
network (connection, 408, 429, 5xx; `Retry-After` is honoured where it fits), at most `concurrency` votes are under way,
at most `daily_budget` are asked for in 24 hours, and at most a megabyte is read. Everything that is sent goes through
`redact` first. Answers that can be parsed are kept in memory, so that judging the same again costs nothing; the others
are asked for anew. The budget is counted in memory too: a restart begins a new day.

No error says more than the host, the status and the server's error code: bodies may hold the key or the conversation.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import aiohttp
import orjson

from openclaw_rl.backoff import Backoff
from openclaw_rl.errors import JudgeError
from openclaw_rl.judge.model.panel import AskFailed
from openclaw_rl.judge.model.parsing import read_vote
from openclaw_rl.types import Json, Message, VoteQuestion

_BACKOFF = Backoff(first_s=0.5)
_DAY_S = 24 * 3600.0
_MAX_BODY_BYTES = 1 << 20
_MAX_CACHED = 1024
_MAX_CACHED_CHARS = 32_768
_RETRIED = frozenset({408, 429})
_CODE = re.compile(r"[a-z]+(_[a-z]+){0,5}")


class _Again(Exception):
    """Worth another attempt, no sooner than in `wait_s`."""

    def __init__(self, reason: str, wait_s: float = 0.0) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


class EndpointAsker:
    """`panel.Asker` over HTTP. `model` is asked for scores and `hint_model`, where there is one, for hints.

    `url` is the base URL that ends in `/v1`. Made anywhere; asked and closed inside one event loop.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str,
        hint_model: str | None = None,
        api_key: str | None = None,
        temperature: float = 0.6,
        max_tokens: int = 1024,
        timeout_s: float = 60.0,
        retries: int = 2,
        backoff: Backoff = _BACKOFF,
        concurrency: int = 4,
        daily_budget: int | None = None,
        redact: Callable[[str], str] = str,
        name: str = "endpoint",
        clock: Callable[[], float] = time.time,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise JudgeError("evaluation.judge_url is not an http(s) URL; name one such as https://api.openai.com/v1")
        if api_key is not None and not (api_key.isascii() and api_key.isprintable() and api_key.strip()):
            raise JudgeError("evaluation.judge_api_key holds characters that no header can carry; copy it again")
        self.name = name
        self._url = f"{url.rstrip('/').removesuffix('/chat/completions')}/chat/completions"
        self._host = parts.hostname
        self._models: dict[VoteQuestion, str] = {"score": model, "hint": hint_model or model}
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._temperature = temperature
        self._max_tokens = max_tokens
        self._timeout_s = timeout_s
        self._retries = retries
        self._backoff = backoff
        self._slots = asyncio.Semaphore(concurrency)
        self._concurrency = concurrency
        self._budget = daily_budget
        self._asked_at: deque[float] = deque()
        self._redact = redact
        self._clock = clock
        self._cache: OrderedDict[bytes, str] = OrderedDict()
        self._redacting: dict[tuple[Message, ...], asyncio.Task[list[dict[str, Json]]]] = {}
        self._session: aiohttp.ClientSession | None = None

    async def ask(self, messages: Sequence[Message], *, question: VoteQuestion, seed: int) -> str:
        """The model's answer, from memory where it was asked the same before; raises `AskFailed`."""
        body = self._body(await self._outgoing(tuple(messages)), question, seed)
        key = hashlib.sha256(body).digest()
        if (known := self._cache.get(key)) is not None:
            self._cache.move_to_end(key)
            return known
        async with self._slots:
            self._spend()
            try:
                async with asyncio.timeout(self._timeout_s):
                    answer = await self._insist(body)
            except TimeoutError:
                raise AskFailed(f"{self._host} gave no answer within {self._timeout_s:g} s") from None
        if read_vote(question, answer).score is not None:
            self._keep(key, answer)
        return answer

    async def _outgoing(self, messages: tuple[Message, ...]) -> list[dict[str, Json]]:
        """The messages as they leave. Once for all votes that wait for it.

        In a thread: redacting a long conversation takes milliseconds, in which chat would stand still.
        """
        work = self._redacting.get(messages)
        if work is None:
            redacted = asyncio.to_thread(
                lambda: [{"role": m.role, "content": self._redact(m.content)} for m in messages]
            )
            work = self._redacting[messages] = asyncio.create_task(redacted)
            work.add_done_callback(lambda _: self._redacting.pop(messages, None))
        return await asyncio.shield(work)

    def forget(self) -> None:
        """Everything is asked anew from here on."""
        self._cache.clear()

    async def close(self) -> None:
        """Closes the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _body(self, outgoing: list[dict[str, Json]], question: VoteQuestion, seed: int) -> bytes:
        return orjson.dumps(
            {
                "model": self._models[question],
                "messages": outgoing,
                "temperature": self._temperature,
                "max_tokens": self._max_tokens,
                "seed": seed,
            }
        )

    async def _insist(self, body: bytes) -> str:
        """The answer, after as many attempts as are allowed."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_s
        attempt = 0
        while True:
            try:
                return await self._attempt(body)
            except _Again as failure:
                attempt += 1
                if attempt > self._retries:
                    raise AskFailed(f"{failure} ({attempt} attempts)") from None
                wait_s = max(failure.wait_s, self._backoff.pause_s(attempt))
                if loop.time() + wait_s >= deadline:
                    reason = f"{failure}; another attempt in {wait_s:g} s would exceed evaluation.judge_timeout_s"
                    raise AskFailed(reason) from None
            await asyncio.sleep(wait_s)

    async def _attempt(self, body: bytes) -> str:
        if self._session is None:
            # The asker has time limits of its own; a limit of the session would count the wait for a connection too.
            connector = aiohttp.TCPConnector(limit=self._concurrency)
            self._session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None))
        headers = {**self._headers, "Content-Type": "application/json"}
        try:
            # A redirect would carry the conversation, and perhaps the key, to where nobody configured.
            async with self._session.post(self._url, data=body, headers=headers, allow_redirects=False) as response:
                return self._answer(self._checked(response, await self._read(response)))
        except (aiohttp.ClientError, OSError) as error:
            raise _Again(f"{self._host}: {type(error).__name__}") from None

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        parts: list[bytes] = []
        size = 0
        async for part in response.content.iter_chunked(1 << 16):
            size += len(part)
            if size > _MAX_BODY_BYTES:
                raise AskFailed(f"{self._host} answered with more than {_MAX_BODY_BYTES} bytes")
            parts.append(part)
        return b"".join(parts)

    def _checked(self, response: aiohttp.ClientResponse, body: bytes) -> Json:
        """The JSON of a good answer."""
        status = response.status
        if status in _RETRIED or status >= 500:
            raise _Again(f"{self._host} answered {status}", _retry_after_s(response, self._clock()))
        parsed = _parsed(body)
        if status != 200:
            raise AskFailed(f"{self._host} answered {status}{self._error_code(parsed)}")
        if parsed is None:
            raise AskFailed(f"{self._host} answered with something that is no JSON object; is judge_url its /v1 base?")
        return parsed

    def _answer(self, parsed: Json) -> str:
        """The text of the first choice of a chat completion."""
        choices = parsed.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        message = choice.get("message") if isinstance(choice, dict) else None
        content = message.get("content") if isinstance(message, dict) else None
        if not isinstance(choice, dict) or not isinstance(content, str):
            raise AskFailed(f"the answer holds no choice with a text{self._error_code(parsed)}")
        if choice.get("finish_reason") == "length":
            raise AskFailed("the answer was cut at its length limit; raise evaluation.judge_max_tokens")
        if not content.strip():
            raise AskFailed("the answer is empty")
        return content

    def _error_code(self, parsed: Json) -> str:
        """The server's own word for what is wrong, where it is a plain identifier and not the key it was sent."""
        error = parsed.get("error") if isinstance(parsed, dict) else None
        for name in ("code", "type"):
            code = error.get(name) if isinstance(error, dict) else None
            if isinstance(code, str) and _CODE.fullmatch(code) and code not in self._headers.get("Authorization", ""):
                return f" ({code})"
        return ""

    @property
    def num_spent(self) -> int | None:
        """Votes of the daily budget that are spent; None: there is no budget. Safe to ask from any thread."""
        if self._budget is None:
            return None
        since = self._clock() - _DAY_S
        return sum(at > since for at in tuple(self._asked_at))

    def _spend(self) -> None:
        """Takes one vote off the budget of the last 24 hours."""
        if self._budget is None:
            return
        now = self._clock()
        while self._asked_at and self._asked_at[0] <= now - _DAY_S:
            self._asked_at.popleft()
        if len(self._asked_at) >= self._budget:
            wait_h = (self._asked_at[0] + _DAY_S - now) / 3600
            raise AskFailed(f"the daily budget of {self._budget} votes is spent; the next is due in {wait_h:.1f} h")
        self._asked_at.append(now)

    def _keep(self, key: bytes, answer: str) -> None:
        if len(answer) > _MAX_CACHED_CHARS:
            return
        self._cache[key] = answer
        if len(self._cache) > _MAX_CACHED:
            self._cache.popitem(last=False)


def _parsed(body: bytes) -> dict[str, Json] | None:
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return parsed if isinstance(parsed, dict) else None


def _retry_after_s(response: aiohttp.ClientResponse, now: float) -> float:
    """How long the server asks to wait: seconds or a date; 0 where it says nothing that can be read."""
    value = response.headers.get("Retry-After", "").strip()
    if re.fullmatch(r"\d{1,9}(\.\d+)?", value):
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now)
    except ValueError:
        return 0.0
