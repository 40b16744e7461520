"""A server that is further away: a relay on loopback that holds back what it passes on."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator

PIECE = 1 << 16


@contextlib.contextmanager
def relay(port: int, delay: float) -> Iterator[int]:
    """The port of a relay to another port of this machine: what goes there waits so many seconds, answers do not."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="relay", daemon=True)
    thread.start()

    async def begin() -> asyncio.Server:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there, back = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.suppress(OSError):
                await asyncio.gather(_late(reader, back, delay), _late(there, writer, 0.0))

        return await asyncio.start_server(connected, "127.0.0.1", 0)

    server = asyncio.run_coroutine_threadsafe(begin(), loop).result()
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


async def _late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
    """Pass on what comes, in order, each piece so many seconds after it came."""
    clock = asyncio.get_running_loop().time
    waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def send() -> None:
        while True:
            due, piece = await waiting.get()
            if (left := due - clock()) > 0:
                await asyncio.sleep(left)
            if not piece:
                writer.close()
                return
            writer.write(piece)
            await writer.drain()

    sending = asyncio.create_task(send())
    piece = b"-"
    while piece:
        piece = await reader.read(PIECE)
        waiting.put_nowait((clock() + delay, piece))
    await sending
