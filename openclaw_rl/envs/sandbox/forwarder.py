"""A port on the loopback of a container -> a Unix socket. It ends with its standard input.

    python -c CODE PORT SOCKET

It runs in the container, where there is nothing of ours but this text: the standard library alone.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import StreamReader, StreamWriter
from contextlib import suppress


async def pump(reader: StreamReader, writer: StreamWriter) -> None:
    while data := await reader.read(64 * 1024):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


async def serve(port: int, path: str) -> None:
    async def connect(reader: StreamReader, writer: StreamWriter) -> None:
        with suppress(OSError):  # either side may go when it likes
            there_reader, there_writer = await asyncio.open_unix_connection(path)
            try:
                await asyncio.gather(pump(reader, there_writer), pump(there_reader, writer))
            finally:
                there_writer.close()
        writer.close()

    async with await asyncio.start_server(connect, "127.0.0.1", port):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.buffer.read)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), sys.argv[2]))
