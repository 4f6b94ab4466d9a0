"""A server of others -> the `Engine` protocol: which version is which adapter there, and who still uses it.

The server keeps weights and caches; what a label means, what is live and when an adapter may go is known here alone. A
version is loaded under a name of its own before anybody hears of it, and unloaded when the last request that names it
has ended. Nothing is ever paused and no name is loaded twice, so that every answer is by one version from its first
token to its last. Whose cache is whose goes by salts: one that was forgotten is sent under another name from then on.

Knows no shape of a request: those are a `ServerDialect`'s.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import platform
import secrets
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from openclaw_rl.engine.foreign.adapters import AdapterFolders, LoadedVersion
from openclaw_rl.engine.foreign.dialect import COLDEST, Asking, ServerDialect, ServerFacts
from openclaw_rl.engine.foreign.places import Places
from openclaw_rl.engine.foreign.probing import (
    HEALTH,
    check_model,
    check_tokenizer,
    list_models,
    marker_adapter,
    wrong_flag,
)
from openclaw_rl.engine.worker import wire
from openclaw_rl.engine.worker.admission import admit, admit_publication, admit_retirement, admit_score
from openclaw_rl.engine.worker.connections import Connections
from openclaw_rl.engine.worker.turns import Turns
from openclaw_rl.errors import ConfigError, EngineError, EngineLost, EngineRefused
from openclaw_rl.model.files import ModelFiles
from openclaw_rl.types import (
    BACKGROUND,
    BASE_VERSION,
    Delta,
    EngineState,
    GenerateRequest,
    Json,
    Publication,
    Scored,
    ScoreRequest,
)

_log = logging.getLogger(__name__)

_LOOK_S = 30.0
"""How long a server may be too busy to say that it is there."""
_CLOSE_S = 10.0


class ForeignEngine:
    """An `Engine` over one server. `welcome` comes before anything else, and again whenever the server is a new one.

    `is_ours`: we started it, with the model that we train. Of another one every answer is confirmed at its end: the
    marker, an adapter that was loaded when the server was checked, must still be there, or it is not the same server.
    """

    def __init__(
        self,
        connections: Connections,
        dialect: ServerDialect,
        model: ModelFiles,
        folder: Path,
        *,
        max_active: int,
        max_queued: int,
        max_rank: int,
        is_ours: bool,
        served_model: str | None = None,
    ) -> None:
        self._connections = connections
        self._dialect = dialect
        self._model = model
        self._folders = AdapterFolders(folder)
        self._max_requests = max_active + max_queued
        self._places = Places(max_active)
        self._max_rank = max_rank
        self._is_ours = is_ours
        self._served_model = served_model
        # The same in the next run from the same folder: what a killed run left in the server is found by it.
        self._prefix = f"oclrl-{hashlib.sha256(f'{platform.node()}:{folder}'.encode()).hexdigest()[:8]}-"
        self._facts: ServerFacts | None = None
        self._marker = ""
        self._versions: dict[str, LoadedVersion] = {}
        self._retired: dict[str, str] = {}
        self._live = BASE_VERSION
        self._publishing = asyncio.Lock()
        self._leaving: set[asyncio.Task[None]] = set()
        self._num_requests = 0
        self._turns = Turns()
        self._forgotten = Counter[str]()

    async def is_missing(self) -> str:
        """Empty once some server answers, whichever it is; otherwise what is wrong."""
        self._marker = ""
        return await self._looked(self._wait_for_facts)

    async def is_gone(self) -> str:
        """Empty while the server that was welcomed answers; otherwise what is wrong."""
        return await self._looked(self._confirm if self._marker else self._wait_for_facts)

    async def _looked(self, look: Callable[[], Awaitable[None]]) -> str:
        try:
            async with asyncio.timeout(_LOOK_S):
                await look()
        except TimeoutError:
            return f"what listens at {self._connections.address} did not answer within {_LOOK_S:g} s"
        except EngineLost as error:
            return f"nothing answers at {self._connections.address}: {error}"
        except EngineError as error:
            return str(error)
        except ConfigError:
            return ""  # somebody is there; whether it can be used is what `welcome` says
        return ""

    async def _wait_for_facts(self) -> None:
        if await self._dialect.facts(self._connections) is None:
            raise EngineError(f"the server at {self._connections.address} still loads its model")

    async def welcome(self) -> None:
        """Looks whether this server can be used, and forgets what was known of one before it.

        `ConfigError` with the flag to change; `EngineLost` if it goes away meanwhile.
        """
        self._marker, self._facts = "", None
        facts = await self._dialect.facts(self._connections)
        if facts is None:
            raise EngineLost("it still loads its model")
        check_model(self._dialect, facts, self._model, self._served_model)
        await check_tokenizer(self._connections, self._dialect, facts, self._model)
        await self._dialect.check(self._connections, facts)
        for name in await list_models(self._connections):
            if name.startswith(self._prefix):
                await self._send(self._dialect.unload(name))
        await asyncio.to_thread(self._folders.clear)
        await self._mark()
        self._facts = facts
        self._versions = {BASE_VERSION: LoadedVersion(label=BASE_VERSION, name=facts.model)}
        self._live = BASE_VERSION

    async def _mark(self) -> None:
        """Loads an adapter that changes nothing: of the largest rank, so that whatever is trained will fit too."""
        marker = f"{self._prefix}marker-{secrets.token_hex(6)}"
        folder = self._folders.place(marker)
        await asyncio.to_thread(marker_adapter, self._model, folder, self._max_rank)
        try:
            await self._send(self._dialect.load(marker, folder))
        except EngineLost:
            raise
        except EngineError as error:
            raise ConfigError(wrong_flag(self._dialect, str(error), folder=folder, max_rank=self._max_rank)) from None
        self._marker = marker

    async def state(self) -> EngineState:
        """What is loaded now, as far as it is known here: `EngineLost` if the server does not answer."""
        if wrong := await self.is_gone():
            raise EngineLost(wrong)
        return self._known_state()

    def _known_state(self) -> EngineState:
        if self._facts is None:
            raise EngineLost("the server was not looked at yet")
        return EngineState(
            model=self._model.name,
            versions=tuple(self._versions),
            live_version=self._live,
            # A prompt is scored by asking for one token more.
            context_window=self._facts.context_window - 1,
            vocab_size=self._model.vocab_size,
            device=f"{self._dialect.name} {self._facts.version}",
            dtype="as served",
        )

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        """Deltas as they come. The last one comes when it is known that the server is still the same."""
        label, max_tokens = admit(request, self._known_state())
        if 0.0 < request.sampling.temperature < COLDEST:
            raise EngineRefused(
                f"temperature {request.sampling.temperature:g} would be sampled as {COLDEST:g} by "
                f"{self._dialect.name}; send 0 for greedy answers, or at least {COLDEST:g}",
                code="sampling_out_of_range",
            )
        if self._num_requests >= self._max_requests:
            raise EngineRefused(
                f"{self._num_requests} requests are in line, more than engine.max_queued allows; try again later",
                status=503,
                code="queue_full",
            )
        version = self._versions[label]
        stamp = self._turns.stamp(request.party, request.weight)
        is_background = request.priority >= BACKGROUND
        request = replace(request, priority=_in_turn(request.priority, stamp))
        async with AsyncExitStack() as held:
            held.enter_context(self._holding(version))
            if is_background:
                await held.enter_async_context(self._places.of_background())
            else:
                held.enter_context(self._places.of_person())
            async with self._telling_death(), aclosing(self._answer(request, version, max_tokens)) as deltas:
                async for delta in deltas:
                    self._turns.begun(stamp)
                    yield delta

    async def _answer(
        self, request: GenerateRequest, version: LoadedVersion, max_tokens: int
    ) -> AsyncGenerator[Delta, None]:
        question = self._dialect.generate(
            request, model=version.name, base=self._base, max_tokens=max_tokens, salt=self._salt(request.cache_salt)
        )
        reader = self._dialect.reader(request, version=version.label)
        body = wire.dumps(question.body)
        async with aclosing(self._connections.events(question.route, body, is_last=reader.is_last)) as batches:
            async for events in batches:
                for delta in wire.coalesce([delta for event in events if (delta := reader.read(event))]):
                    if delta.finish_reason is not None and not self._is_ours:
                        await self._confirm()
                    yield delta

    async def score(self, request: ScoreRequest) -> tuple[Scored, ...]:
        """The log-probs of every sequence, at T = 1: servers of others know no other for what is already there."""
        label = admit_score(request, self._known_state())
        if request.temperature != 1.0:
            raise EngineRefused(
                f"{self._dialect.name} scores at temperature 1 only, got {request.temperature:g}", code="not_supported"
            )
        version = self._versions[label]
        request = replace(request, priority=_in_turn(request.priority))
        # Without a salt the sequences are each other's alone, and leave nothing that others find.
        salt = self._salt(request.cache_salt)

        async def one(number: int) -> Scored:
            async with self._places.of_background(), self._telling_death():
                raw = await self._send(
                    self._dialect.score(request, number, model=version.name, base=self._base, salt=salt)
                )
            ids, start = request.sequences[number], request.starts[number]
            return await asyncio.to_thread(self._dialect.scored, raw, ids, start, top=request.top_logprobs)

        with self._holding(version):
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(one(number)) for number in range(len(request.sequences))]
            except ExceptionGroup as failures:
                raise failures.exceptions[0] from None  # one request, one answer: the others were cancelled with it
            if not self._is_ours:
                await self._confirm()
        return tuple(task.result() for task in tasks)

    async def publish(self, publication: Publication) -> None:
        """Loads the version under a name of its own; only then it is there, and live if that was wished."""
        # In a task of its own: a load that has begun cannot be stopped, and what it brought must not be lost.
        task = asyncio.create_task(self._publish(publication))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(task)

    async def _publish(self, publication: Publication) -> None:
        async with self._publishing:
            label = publication.version
            loaded = {known.label: known.sha256 for known in self._versions.values()}
            if label not in loaded and label in self._retired:
                admit_publication(publication, self._retired)
            if admit_publication(publication, loaded):
                name = f"{self._prefix}{label}-{publication.sha256[:12]}-{secrets.token_hex(4)}"
                folder = await asyncio.to_thread(self._folders.copy, publication, name)
                try:
                    await self._send(self._dialect.load(name, folder))
                except EngineLost:
                    raise
                except EngineError as error:
                    self._folders.leave(folder)
                    message = wrong_flag(self._dialect, str(error), folder=folder, max_rank=self._max_rank)
                    raise EngineRefused(f"version {label}: {message}", code="version_unreadable") from error
                self._versions[label] = LoadedVersion(label=label, name=name, sha256=publication.sha256, folder=folder)
            if publication.live:
                self._live = label

    async def retire(self, version: str) -> None:
        """New requests no longer find the version; the server lets go of it when the last one that names it ends."""
        admit_retirement(version, self._known_state())
        retired = self._versions.pop(version)
        self._retired[version] = retired.sha256
        if retired.num_requests == 0:
            await self._unload(retired)

    async def forget_cache(self, salts: Collection[str]) -> None:
        """From now on these salts are sent under other names: nothing that they left is found, and it goes in time."""
        self._forgotten.update(salts)

    async def close(self) -> None:
        """Leaves nothing of ours in a server that goes on without us, if it still answers."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                while self._leaving:
                    await asyncio.wait(self._leaving)
                if self._marker and not self._is_ours:
                    names = [known.name for known in self._versions.values() if known.folder is not None]
                    for name in (*names, self._marker):
                        await self._unload_quietly(name)
        self._connections.close()
        await asyncio.to_thread(self._folders.clear)

    @property
    def _base(self) -> str:
        assert self._facts is not None, "admitted, so it was looked at"
        return self._facts.model

    def _salt(self, salt: str) -> str:
        if not salt:
            return secrets.token_hex(16)
        times = self._forgotten.get(salt, 0)
        return hashlib.sha256(f"{salt}:{times}:{self._prefix}".encode()).hexdigest()

    async def _send(self, question: Asking) -> Json:
        raw = await self._connections.fetch(question.route, b"" if question.body is None else wire.dumps(question.body))
        try:
            return await asyncio.to_thread(wire.loads, raw)
        except ValueError:
            return raw.decode(errors="replace")  # vLLM says in plain words that an adapter is loaded

    @asynccontextmanager
    async def _telling_death(self) -> AsyncIterator[None]:
        """A server whose model died says so in an answer, like any failure, before it ends: `EngineLost`."""
        try:
            yield
        except (EngineLost, EngineRefused):
            raise
        except EngineError as error:
            if wrong := await self._looked(self._check_health):
                raise EngineLost(f"{wrong} ({error})") from error
            raise

    async def _check_health(self) -> None:
        answer = await self._connections.look(HEALTH)
        if answer.status != 200:
            raise EngineLost(f"its /health answers {answer.status}")

    async def _confirm(self) -> None:
        """`EngineLost` if the server is not well, `EngineError` if it is not the one that was looked at."""
        await self._check_health()
        if self._marker not in await list_models(self._connections):
            raise EngineError(
                f"the server at {self._connections.address} was started again, or is another one, since it was looked "
                "at: what it answered is not known to be by this model"
            )

    @contextmanager
    def _holding(self, version: LoadedVersion) -> Iterator[None]:
        version.num_requests += 1
        self._num_requests += 1
        try:
            yield
        finally:
            version.num_requests -= 1
            self._num_requests -= 1
            if version.num_requests == 0 and self._versions.get(version.label) is not version:
                self._later(self._unload(version))

    def _later(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _unload(self, version: LoadedVersion) -> None:
        if version.folder is not None:
            await self._unload_quietly(version.name)
            await asyncio.to_thread(self._folders.leave, version.folder)

    async def _unload_quietly(self, name: str) -> None:
        try:
            await self._send(self._dialect.unload(name))
        except EngineError as error:  # a server that is gone took it along
            _log.info("an adapter was not unloaded", extra={"adapter": name, "reason": str(error)})


def _in_turn(priority: int, stamp: float = 0.0) -> int:
    """The priority that is sent: what comes first of one priority is whose turn it is, and another one comes after."""
    return (priority << 40) + min(int(1000 * stamp), (1 << 40) - 1)
