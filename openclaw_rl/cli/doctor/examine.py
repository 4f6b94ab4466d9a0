"""`openclaw-rl doctor`: looks at everything a start depends on, and says what to do. Changes and fetches nothing."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from itertools import chain
from pathlib import Path
from urllib.parse import urlsplit

from rich.table import Table
from rich.text import Text

from openclaw_rl.cli.address import ADDRESS_FILE, KEY_FILE, read_address
from openclaw_rl.cli.client import GatewayClient
from openclaw_rl.cli.connect.clients import CLIENTS
from openclaw_rl.cli.connect.records import connected
from openclaw_rl.cli.doctor import checks, probes
from openclaw_rl.cli.screen import make_console, print_json
from openclaw_rl.config import Config, StoreConfig
from openclaw_rl.engine.advice import advise
from openclaw_rl.engine.embedded.cpu.dtype_probe import why_not_bfloat16
from openclaw_rl.engine.registry import capabilities_of
from openclaw_rl.errors import OpenClawError, StoreDamaged, StoreError
from openclaw_rl.gateway.access.auth import read_key_file
from openclaw_rl.model.files import EMBEDDED_NAME
from openclaw_rl.protocols import ReadStore
from openclaw_rl.store import had_store, server_facts
from openclaw_rl.store.audit import Audited
from openclaw_rl.types import TRACES_LEFT
from openclaw_rl.views.health import CheckResult, Health, read_backlog, read_unscored
from openclaw_rl.views.rows import damaged_rows, has_store, open_rows, stray_bytes

_MARKS = {"ok": ("✓", "green"), "remark": ("!", "yellow"), "broken": ("✗", "red")}
_EMBEDDED_BYTES = 800_000_000
"""Free space that fetching and converting the embedded model takes at its height."""
_DATA_BYTES = 500_000_000
_ANSWER_S = 5.0


def run_doctor(config: Config, *, deep: bool = False, as_json: bool) -> int:
    """Print every finding as it is made; the exit status: 1 if something is broken."""
    console = make_console()
    findings: list[CheckResult] = []
    is_watched = console.is_terminal and not as_json
    with console.status("looking …", spinner_style="dim") if is_watched else nullcontext():
        for finding in chain(examine(config), examine_deep(config.store) if deep else ()):
            findings.append(finding)
            if not as_json:
                console.print(finding_row(finding))
    health = Health(checks=findings)
    if as_json:
        print_json(health.to_json())
    else:
        console.print(summary_text(health))
    return 1 if health.num_broken else 0


def examine(config: Config) -> Iterator[CheckResult]:
    """All findings, the quick ones first."""
    engine, data_dir = config.engine, config.store.data_dir
    yield checks.check_python(sys.version_info[:3])
    yield checks.check_sqlite(sqlite3.sqlite_version_info)
    yield checks.check_cpu(probes.num_cores(), probes.cpu_flags())
    yield checks.check_engine(engine)

    url, answers, waiting_for, engines = asyncio.run(_ask_server(data_dir))
    host, port = config.gateway.host, config.gateway.port
    ours = url is not None and answers and urlsplit(url).port == port
    yield checks.check_server(url, answers=answers, waiting_for=waiting_for)
    if engines:
        yield checks.check_engines(engines)
    yield checks.check_port(host, port, problem=probes.why_not_listen(host, port), ours=ours)
    yield checks.check_modes(data_dir, probes.open_files(data_dir))
    free = probes.free_bytes(data_dir)
    yield checks.check_disk("disk", data_dir, free=free, needed=_DATA_BYTES, setting="--data-dir")

    rows, problem, damage = _rows(config.store)
    if config.store.url is not None:
        yield _shared_store(config.store.url)
    elif rows is not None or damage:
        yield checks.check_store(damage, has_traces=rows is not None and rows.flag(TRACES_LEFT) is not None)
    yield checks.check_judge(config.evaluation.judge, None if rows is None else read_unscored(rows))
    yield checks.check_learning(None if rows is None else read_backlog(rows), problem)

    model = probes.model_facts(config.model, weights=capabilities_of(config.engine).computes_here)
    yield checks.check_model(model)
    if model.files is None and model.name == EMBEDDED_NAME:
        cache, needed = config.model.cache_dir, _EMBEDDED_BYTES
        free = probes.free_bytes(cache)
        yield checks.check_disk("cache", cache, free=free, needed=needed, setting="model.cache_dir")
    if model.files is not None:
        clients = [CLIENTS[name] for name in connected(data_dir) if name in CLIENTS]
        yield checks.check_window(engine.context_window or model.files.context_window, clients)
    total, available = probes.memory()
    weight_bytes = model.files.weight_bytes if model.files else None
    yield checks.check_memory(total=total, available=available, weight_bytes=weight_bytes)

    gpus = probes.gpus_of_driver()
    yield checks.check_gpu(gpus, probes.torch_facts(), engine)
    if capabilities_of(engine).has_weights:
        advice = advise(engine, model.files, probes.gpu_bytes(gpus), is_ours=probes.is_ours(model.files))
        yield checks.check_advice(advice)
    yield checks.check_bfloat16(why_not_bfloat16(), engine)


def examine_deep(store: StoreConfig) -> Iterator[CheckResult]:
    """What is damaged in the store, by name. Reads every byte of it and of all versions.

    What cannot be opened at all was told before.
    """
    with suppress(StoreError):
        if not has_store(store):
            return
        audited, num_damaged = Audited(), 0
        for damage in damaged_rows(store, audited):
            num_damaged += 1
            yield checks.broken("audit", f"{damage.what}: {damage.why}", damage.remedy)
        if behind := stray_bytes(store):
            text = f"{behind} bytes stand behind the end of the database"
            yield checks.remark("audit", text, "nothing to do: they are no part of it")
        yield checks.check_audited(audited, num_damaged)


def finding_row(finding: CheckResult) -> Table:
    """A line, and the remedy below it; what is too long goes on under its own beginning."""
    mark, style = _MARKS[finding.state]
    row = Table.grid(padding=(0, 1))
    for width in (1, 9, None):
        row.add_column(width=width, overflow="fold")
    row.add_row(Text(mark, style), finding.name, Text(finding.text))
    if finding.remedy:
        row.add_row("", "", Text(f"→ {finding.remedy}", "dim" if finding.state == "ok" else style))
    return row


def summary_text(health: Health) -> Text:
    if health.num_broken:
        return Text(f"\nBroken: {health.num_broken}. The arrows say what to do.", "red")
    return Text("\nEverything that is needed works.", "green")


def _rows(store: StoreConfig) -> tuple[ReadStore | None, str, str]:
    """What is stored; nothing where there is no store yet, or why this release cannot read it, or what is damaged."""
    try:
        return (open_rows(store) if has_store(store) or had_store(store.data_dir) else None), "", ""
    except StoreDamaged as error:
        return None, "", str(error)
    except StoreError as error:
        return None, str(error), ""


def _shared_store(url: str) -> CheckResult:
    try:
        return checks.check_shared_store(server_facts(url))
    except StoreError as error:
        what, _, remedy = str(error).rpartition(": ")
        return checks.broken("store", what, remedy)


async def _ask_server(data_dir: Path) -> tuple[str | None, bool, str | None, list[tuple[str, str, str]]]:
    """The address that a server left, whether it answers there, what it waits for, and how each of its engines is."""
    url = None
    try:
        address = read_address(data_dir)
        if address is None:
            return None, False, None, []
        url, key = address.url, read_key_file(data_dir / KEY_FILE)
        async with asyncio.timeout(_ANSWER_S), GatewayClient(url, key) as client:
            return url, True, await client.why_not_ready(), await client.engines()
    except (TimeoutError, OpenClawError):
        return url or str(data_dir / ADDRESS_FILE), False, None, []
