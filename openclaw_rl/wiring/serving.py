"""The parts that answer requests: the engine, the gateway over it, and the sockets that clients and commands use."""

from __future__ import annotations

import asyncio
import os
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from openclaw_rl.config import Config
from openclaw_rl.engine.registry import make_host
from openclaw_rl.errors import ConfigError
from openclaw_rl.evaluation.exam import Exam
from openclaw_rl.gateway.access.auth import KeyRing, key_digest, new_key, read_key_file, write_key_file
from openclaw_rl.gateway.access.quotas import Quotas
from openclaw_rl.gateway.access.redacting import RedactingStore
from openclaw_rl.gateway.access.retention import Retention
from openclaw_rl.gateway.access.shares import Shares
from openclaw_rl.gateway.answer.exchange import Background, Gateway
from openclaw_rl.gateway.answer.following import Following, SharedStore
from openclaw_rl.gateway.answer.heads import PromptHeads
from openclaw_rl.gateway.answer.memory import TokenMemory
from openclaw_rl.gateway.api.admin import Decides, Telling, build_admin
from openclaw_rl.gateway.api.app import App
from openclaw_rl.gateway.api.http_server import HttpRunner
from openclaw_rl.gateway.api.metrics import Metrics
from openclaw_rl.gateway.sessions.history import Fingerprint
from openclaw_rl.gateway.sessions.placement import Sessions
from openclaw_rl.protocols import EngineHost, WholeStore
from openclaw_rl.release.live import LiveVersions
from openclaw_rl.release.undo.commands import Commands
from openclaw_rl.store import told_of
from openclaw_rl.types import LOCAL_USER, Json
from openclaw_rl.wiring.cloud import desk_of, show_bill
from openclaw_rl.wiring.foundation import Foundation
from openclaw_rl.wiring.learning import ReleaseParts

_MAX_SOCKET_PATH = 100
"""Unix socket paths hold 108 bytes on Linux and 104 on macOS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingParts:
    """`secret` is the local user's key in plain, for the person who started the server."""

    host: EngineHost
    gateway: Gateway
    live: LiveVersions
    keys: KeyRing
    secret: str
    metrics: Metrics
    quotas: Quotas
    retention: Retention | None
    following: Following | None
    """Where other processes serve from the same store."""
    sockets: Path


async def make_serving(foundation: Foundation, store: WholeStore, sockets: Path) -> ServingParts:
    """Keys and open sessions are as they were before the last stop or crash."""
    config, model_id = foundation.config, foundation.model_id
    live = LiveVersions()
    keys, secret = await _load_keys(store, config)
    desk, metrics = desk_of(config), Metrics()
    host = make_host(config.engine, foundation.model, sockets / "engine.sock", desk=desk)
    if desk is not None:
        show_bill(desk, metrics.registry)
    shares = Shares(max_bytes=config.gateway.max_reading_bytes)
    background = Background()
    shared = store if isinstance(store, SharedStore) else None
    following = None if shared is None else Following(shared, store.lessons.woken("sessions"))
    gateway = Gateway(
        catch_up=None if following is None else following.catch_up,
        reserve=None if shared is None else shared.reserve,
        live_label=live.label,
        on_unreadable=live.lost,
        shares=shares,
        engine=host.engine,
        renderer=foundation.renderer,
        store=RedactingStore(store, shares, background.start) if config.store.redact else store,
        sessions=await _open_sessions(store, config),
        memory=TokenMemory(store.get_turn, model_id=model_id, max_turns=config.rollout.max_turns_in_memory),
        background=background,
        model_id=model_id,
        logprobs_changed_by=host.capabilities.logprobs_changed_by,
        heads=PromptHeads(foundation.renderer) if config.engine.share_heads else None,
        weight_of=lambda user: keys.terms_of(user).weight or 1.0,
    )
    if following is not None:
        following.teach(gateway, keys)
    days = config.store.retention_days
    return ServingParts(
        host=host,
        gateway=gateway,
        live=live,
        keys=keys,
        secret=secret,
        metrics=metrics,
        quotas=Quotas(
            requests_per_minute=config.gateway.requests_per_minute,
            tokens_per_minute=config.gateway.tokens_per_minute,
            on_refused=metrics.limited,
            on_spent=metrics.spent,
        ),
        following=following,
        retention=None if days is None else Retention(gateway, store.lessons, store.erase, days=days),
        sockets=sockets,
    )


@contextmanager
def socket_dir(run_dir: Path) -> Iterator[Path]:
    """A directory whose path is short enough for sockets: the run directory, or one under the system's temporary."""
    if len(os.fsencode(run_dir / "engine.sock")) <= _MAX_SOCKET_PATH:
        for stale in run_dir.glob("*.sock"):
            stale.unlink()
        yield run_dir
        return
    with tempfile.TemporaryDirectory(prefix="openclaw-rl-") as short:
        yield Path(short)


def new_session_id() -> str:
    """Ids that sort by time: what is written together then lies together, and a commit touches few pages. Nobody can
    guess one and call a session of his own so beforehand."""
    return f"s-{int(time.time() * 1000):x}{secrets.token_hex(8)}"


async def _open_sessions(store: WholeStore, config: Config) -> Sessions:
    """Sessions that are overdue end with the first round of the expire loop."""
    rollout = config.rollout
    sessions = Sessions(
        timeout_s=rollout.session_timeout_s,
        new_id=new_session_id,
        max_open=rollout.max_concurrent_sessions,
        max_turns=rollout.max_turns_in_memory,
    )
    for outline in await store.load_open():
        sessions.restore(outline)
    sessions.put_away()
    sessions.keep_private(map(Fingerprint.parse, await store.load_private()))
    return sessions


async def _load_keys(store: WholeStore, config: Config) -> tuple[KeyRing, str]:
    """The keys of all users, and the local user's own in plain, which is made at the first start."""
    known = await store.keys()
    ring = KeyRing(known)
    path = config.store.data_dir / "key"
    secret = read_key_file(path)
    if secret is None or key_digest(secret) in {key.digest for key in known if key.revoked_at is not None}:
        _, secret = new_key(LOCAL_USER, time.time())
        with told_of(path):
            write_key_file(path, secret)
    if key_digest(secret) not in {key.digest for key in known}:
        key, _ = new_key(LOCAL_USER, time.time(), label="key file", secret=secret)
        await store.put_key(key)
        ring.add(key)
    if config.gateway.api_key is not None:
        # In memory only: a key that leaves the settings opens nothing any more.
        ring.add(new_key(LOCAL_USER, time.time(), secret=config.gateway.api_key.get_secret_value())[0])
    return ring, secret


@asynccontextmanager
async def listening(
    foundation: Foundation,
    serving: ServingParts,
    releasing: ReleaseParts,
    commands: Commands,
    *,
    telling: Mapping[str, Telling],
    train: Callable[[], Awaitable[object]] | None,
    hurry: asyncio.Event,
    page_routes: Callable[[App], Iterable[web.RouteDef]] = lambda _: (),
    page_link: Callable[[str], str] | None = None,
    decisions: Callable[[App], Decides | None] = lambda _: None,
) -> AsyncIterator[str]:
    """Listens for clients, at the URL that it yields, and for commands. `page_link` gives a link to the page of the
    server at a URL; None: there is no page. `decisions` are what a person may decide about lessons.

    Leaving waits until running answers are finished, or until `hurry`.
    """
    config = foundation.config.gateway
    app = App(
        serving.gateway,
        config,
        model=foundation.config.model.served_name or foundation.model.name,
        keys=serving.keys,
        metrics=serving.metrics,
        host=serving.host,
        quotas=serving.quotas,
    )
    public = HttpRunner(app.build(page_routes(app)), config)
    name = f"[{config.host}]" if ":" in config.host else config.host

    def url() -> str:
        return f"http://{name}:{public.addresses[0][1]}"

    async def examine(
        line: str, number: int, exam: Mapping[str, Json], on_progress: Callable[[int, int], None]
    ) -> Json:
        found = await releasing.examiner.examine(line, number, Exam.from_json(exam), on_progress=on_progress)
        return found.to_json()

    admin = web.AppRunner(
        build_admin(
            serving.gateway.store,
            serving.keys,
            roll_back=releasing.releaser.roll_back,
            train=train,
            examine=examine,
            telling=telling,
            commands=commands,
            page_link=None if page_link is None else lambda: page_link(url()),
            decisions=decisions(app),
        ),
        access_log=None,
        shutdown_timeout=1.0,  # a long command that somebody waits for must not keep the system from ending
    )
    admin_socket = serving.sockets / "admin.sock"
    await public.setup()
    await admin.setup()
    try:
        await _bind(web.TCPSite(public, config.host, config.port), f"{config.host}:{config.port}")
        await _bind(web.UnixSite(admin, str(admin_socket)), str(admin_socket))
        yield url()
    finally:
        await admin.cleanup()
        await public.drain(hurry)
        await asyncio.to_thread(admin_socket.unlink, missing_ok=True)


async def _bind(site: web.BaseSite, address: str) -> None:
    before = os.umask(0o177)
    try:
        await site.start()
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise ConfigError(f"cannot listen on {address} ({reason}); choose another address with --port") from None
    finally:
        os.umask(before)
