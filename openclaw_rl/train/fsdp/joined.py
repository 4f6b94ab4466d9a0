"""`protocols.Trainer` by processes that somebody else started, on this machine or others: they join, and take orders.

    torchrun --nproc-per-node 8 -m openclaw_rl.train.fsdp --join ADDRESS --key-file FILE

One group trains at a time; a second one waits for its turn outside. An order waits until a group is there. When the
group's connection ends in the middle of an order, the order is lost and its samples go back. Orders and reports go over
the connection; checkpoints do not: `training.save_path` and the model have the same path on every machine.
Knows no tensors. The other side, and what is said, is in `joining.py`.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import secrets
from asyncio import StreamReader, StreamWriter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

from openclaw_rl.config import Config
from openclaw_rl.errors import ConfigError, TrainerLost, TrainError
from openclaw_rl.train.fsdp.joining import FORMAT, parse_address, prove
from openclaw_rl.train.local import OrderingTrainer, versions_folder, worker_options
from openclaw_rl.train.wire import Order, Report, order_lines, parse_report
from openclaw_rl.types import Json

_log = logging.getLogger(__name__)

_MAX_LINE = 1 << 30
"""Of a report: log-probs of a whole probe set are a few megabytes."""
_GREETING_S = 10.0


class JoinedTrainer(OrderingTrainer):
    """Listens from its first order on."""

    def __init__(
        self,
        model: Path,
        folder: Path,
        options: Mapping[str, Json],
        *,
        listen: str,
        key_file: Path,
        world_size: int | None = None,
    ) -> None:
        """Whoever joins must know the key in `key_file`, which is made if it is not there; with a `world_size` it must
        be so many processes."""
        super().__init__(folder)
        self._model = model
        self._options = dict(options)
        self._listen = listen
        self._key_file = key_file
        self._key = _key_of(key_file)  # at once: whoever starts the processes copies it
        self._world_size = world_size
        self._server: asyncio.Server | None = None
        self._group: tuple[StreamReader, StreamWriter] | None = None
        self._guests: set[asyncio.Task[None]] = set()
        self._seat = asyncio.Lock()
        self._there = asyncio.Event()
        self._gone = asyncio.Event()

    @classmethod
    def of(cls, config: Config, model: Path) -> Self:
        training, run_dir = config.training, config.store.data_dir / "run"
        listen = training.listen or str(run_dir / "trainer.sock")
        try:
            parse_address(listen)
        except TrainError as error:
            raise ConfigError(str(error)) from error
        counted = training.gpus_per_node or training.actor_gpus or len(training.gpu_ids)
        return cls(
            model,
            versions_folder(config),
            worker_options(config),
            listen=listen,
            key_file=config.store.data_dir / "trainer.key",
            world_size=counted * training.nnodes if counted else None,
        )

    async def listen(self) -> None:
        """Lets groups join from now on."""
        if self._server is not None:
            return
        try:
            self._server = await self._serve()
        except OSError as error:
            raise TrainError(f"nobody can join at {self._listen} ({error}); set training.listen to another") from error
        _log.info("trainers join here", extra={"address": self._listen, "key_file": str(self._key_file)})

    async def _serve(self) -> asyncio.Server:
        place = parse_address(self._listen)
        if isinstance(place, Path):
            await asyncio.to_thread(_clear, place)
            server = await asyncio.start_unix_server(self._greet, path=place, limit=_MAX_LINE)
            await asyncio.to_thread(place.chmod, 0o600)
            return server
        return await asyncio.start_server(self._greet, *place, limit=_MAX_LINE)

    async def _greet(self, reader: StreamReader, writer: StreamWriter) -> None:
        """A stranger becomes the group that trains, or is told why not."""
        task = asyncio.current_task()
        assert task is not None
        self._guests.add(task)
        try:
            async with asyncio.timeout(_GREETING_S):
                nonce = secrets.token_hex(16)
                await _say(writer, {"nonce": nonce})
                said = json.loads(await reader.readline() or b"{}")
            if (why := self._objection(said, nonce)) is not None:
                _log.warning("a trainer was refused: %s", why)
                await _say(writer, {"refused": why})
            else:
                async with self._seat:
                    options = {**self._options, "shrink": self.shrink}
                    await _say(writer, {"model": str(self._model), "options": options})
                    self._gone.clear()
                    self._group = (reader, writer)
                    _log.info("a trainer joined", extra={"world_size": said["world_size"]})
                    self._there.set()
                    await self._gone.wait()
        except (OSError, ValueError, TimeoutError) as error:
            _log.warning("a trainer could not join: %r", error)
        except asyncio.CancelledError:
            pass  # by `close`, which waits: to asyncio's streams a guest who is cancelled is an error
        finally:
            self._guests.discard(task)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def _objection(self, said: Mapping[str, object], nonce: str) -> str | None:
        proof = said.get("proof")
        if not isinstance(proof, str) or not hmac.compare_digest(proof, prove(self._key, nonce)):
            return f"the key is another; give --key-file a copy of {self._key_file}"
        if said.get("format") != FORMAT:
            return (
                f"these processes speak format {said.get('format')}, and format {FORMAT} is spoken here; install the "
                "same release on all machines"
            )
        if self._world_size is not None and said.get("world_size") != self._world_size:
            return (
                f"{said.get('world_size')} processes join, and the settings ask for {self._world_size}; start so many "
                "(torchrun --nnodes, --nproc-per-node), or set training.gpus_per_node and training.nnodes to what is "
                "there"
            )
        return None

    async def _order(self, order: Order, target: Path | None = None) -> Report:
        async with self.one_at_a_time:
            reader, writer = await self._trainer()
            body = await asyncio.to_thread(lambda: "".join(order_lines(order)).encode())
            try:
                await _say(writer, {"bytes": len(body), "target": None if target is None else str(target)}, body)
                said = await reader.readline()
            except OSError:
                said = b""
            except asyncio.CancelledError:
                self._part()  # its report would be taken for that of the next order
                raise
            answer = json.loads(said) if said.endswith(b"\n") else {"lost": "the connection ended"}
            if (lost := answer.get("lost")) is not None:
                self._part()
                self.num_lost += 1
                raise TrainerLost(f"the trainer that joined is gone: {lost}")
            self.num_lost = 0
            if (error := answer.get("error")) is not None:
                raise TrainError(error)
            return await asyncio.to_thread(parse_report, answer["report"])

    async def _trainer(self) -> tuple[StreamReader, StreamWriter]:
        """The group that trains; waits until there is one."""
        await self.listen()
        while True:
            if not self._there.is_set():
                _log.warning("a step waits until a trainer joins at %s", self._listen)
            await self._there.wait()
            assert self._group is not None
            if not self._group[0].at_eof():
                return self._group
            self._part()  # it died between two orders

    def _part(self) -> None:
        """The next group may join."""
        self._group = None
        self._there.clear()
        self._gone.set()

    async def close(self) -> None:
        """Ends the connection; the processes end themselves, and whoever started them decides what then."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self._part()
        for guest in (guests := list(self._guests)):
            guest.cancel()
        if guests:
            await asyncio.wait(guests)


async def _say(writer: StreamWriter, words: Mapping[str, object], body: bytes = b"") -> None:
    writer.write(json.dumps(words).encode() + b"\n" + body)
    await writer.drain()


def _key_of(path: Path) -> str:
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(secrets.token_urlsafe(32) + "\n", encoding="utf-8")
    return path.read_text(encoding="utf-8").strip()


def _clear(socket: Path) -> None:
    socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    socket.unlink(missing_ok=True)
