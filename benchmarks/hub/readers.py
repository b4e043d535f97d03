"""Many clients that read at the same time, in one process, with as little of its time as possible.

python -m benchmarks.hub.readers < JSON: addresses, paths, tokens, clients, seconds. Each client
keeps one connection and sends a request as soon as the last one was answered. Prints JSON: the
number of answers and errors, and percentiles of the times in milliseconds.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any
from urllib.parse import urlsplit


class Client:
    def __init__(self, address: str, paths: list[str], token: str | None, turn: int) -> None:
        parts = urlsplit(address)
        self.host, self.port = str(parts.hostname), int(parts.port or 80)
        lines = "" if token is None else f"Authorization: Bearer {token}\r\n"
        self.requests = [
            f"GET {path} HTTP/1.1\r\nHost: {parts.netloc}\r\n{lines}\r\n".encode() for path in paths
        ]
        self.turn = turn
        self.times: list[float] = []
        self.errors: list[str] = []

    async def run(self, begin: float, end: float) -> None:
        reader, writer = await asyncio.open_connection(self.host, self.port)
        await asyncio.sleep(max(0.0, begin - time.monotonic()))
        while (now := time.monotonic()) < end:
            writer.write(self.requests[self.turn % len(self.requests)])
            self.turn += 1
            try:
                status = await _answer(reader)
            except (OSError, asyncio.IncompleteReadError) as error:
                self.errors.append(type(error).__name__)
                reader, writer = await asyncio.open_connection(self.host, self.port)
                continue
            if status != 200:
                self.errors.append(str(status))
            self.times.append(time.monotonic() - now)
        writer.close()


async def _answer(reader: asyncio.StreamReader) -> int:
    head = await reader.readuntil(b"\r\n\r\n")
    low = head.lower()
    at = low.find(b"content-length:")
    length = int(low[at + 15 : low.index(b"\r", at)]) if at >= 0 else 0
    await reader.readexactly(length)
    return int(head[9:12])


async def _read(job: dict[str, Any]) -> dict[str, Any]:
    addresses, count = job["addresses"], job["clients"]
    tokens = job["tokens"] or [None]
    clients = [
        Client(addresses[i % len(addresses)], job["paths"], tokens[i % len(tokens)], i)
        for i in range(count)
    ]
    begin = time.monotonic() + 1.0  # all are connected by then
    end = begin + job["seconds"]
    await asyncio.gather(*(client.run(begin, end) for client in clients))
    times = sorted(t for client in clients for t in client.times)
    errors = [error for client in clients for error in client.errors]
    return {
        "clients": count,
        "answers": len(times),
        "errors": len(errors),
        "kinds": sorted(set(errors)),
        "per_second": len(times) / job["seconds"],
        "p50_ms": 1000 * times[len(times) // 2],
        "p99_ms": 1000 * times[int(len(times) * 0.99)],
        "max_ms": 1000 * times[-1],
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_read(json.load(sys.stdin)))))
