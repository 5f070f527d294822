"""A bad network between agents and service: answers get lost, requests arrive twice, late and in another order."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter

READ_SECONDS = 30.0


class Proxy:
    """Forwards HTTP requests one by one and, by chance, does what networks do. ``did`` counts it."""

    def __init__(self, target_port: int, seed: int, *, rate: float = 0.1) -> None:
        self.did: Counter[str] = Counter()
        self._target_port, self._random, self._rate = target_port, random.Random(seed), rate
        self._loop = asyncio.new_event_loop()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self._thread.start()
        ready.wait()

    def _run(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0.1))
        self._loop.close()

    def close(self) -> None:
        """Stop forwarding."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while request := await _message(reader):
                answer = await self._mishandled(request)
                if answer is None:
                    break
                writer.write(answer)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            pass
        finally:
            writer.close()

    async def _mishandled(self, request: bytes) -> bytes | None:
        fate = self._random.choices(
            ["forwarded", "answer lost", "sent twice", "late", "request lost"],
            [1 - 4 * self._rate / 2, *[self._rate / 2] * 4],
        )[0]
        self.did[fate] += 1
        if fate == "request lost":
            return None
        if fate == "late":  # whatever was sent meanwhile overtakes it
            await asyncio.sleep(self._random.uniform(0.2, 2.0))
        if fate == "sent twice":
            await asyncio.gather(self._forward(request), asyncio.sleep(0))
        answer = await self._forward(request)
        return None if fate == "answer lost" else answer

    async def _forward(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        try:
            writer.write(request)
            await writer.drain()
            return await _message(reader)
        finally:
            writer.close()


async def _message(reader: asyncio.StreamReader) -> bytes:
    """Return one HTTP message with a Content-Length, empty at the end of the connection."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = await asyncio.wait_for(reader.readline(), READ_SECONDS)
        if not line:
            return b""
        head += line
    lengths = [line.partition(b":")[2] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    return head + (await reader.readexactly(int(lengths[0])) if lengths else b"")
