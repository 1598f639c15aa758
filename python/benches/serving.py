"""Compares `gangline serve` with LitServe and mosec: one model, one machine, one run.

    python benches/serving.py [--gangline PROGRAM] [--seconds 10]

The model takes 20 ms for a list and 1 ms more for each value, asleep, in one worker with lists of up to 64. Each server
runs as its documentation shows it.

- Closed loop: 64 clients ask one value after the other.
- Open loop, of gangline: values come at random moments (Poisson), at a load of 0.05, 0.3 and 0.7 of what endless lists
  could take. The mean latency stands beside that of a server without overhead, which is simulated for the same moments,
  and beside the closed form of Inoue, "Queueing analysis of GPU-based inference servers with dynamic batching" (2021):
  an upper bound of the mean, close to it, for lists without a limit.
- The same open loop beside `--background FILE`, whose values fill all lists: the latency of the 99th percentile stands
  beside the one without a background and the time of one full list, and the busy time of the worker beside the clock.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

FIXED, EACH, MOST = 0.020, 0.001, 64
LOADS = (0.05, 0.3, 0.7)

GANGLINE = f"""
import time, gangline

def work(_, xs):
    time.sleep({FIXED} + {EACH} * len(xs))
    return [2 * x for x in xs]

gangline.worker(lambda context: None, work, batch={MOST})
"""
LITSERVE = f"""
import sys, time, litserve

class Model(litserve.LitAPI):
    def setup(self, device):
        pass
    def decode_request(self, request):
        return request["x"]
    def batch(self, xs):
        return list(xs)
    def predict(self, xs):
        time.sleep({FIXED} + {EACH} * len(xs))
        return [2 * x for x in xs]
    def unbatch(self, ys):
        return ys
    def encode_response(self, y):
        return {{"y": y}}

if __name__ == "__main__":
    api = Model(max_batch_size={MOST}, batch_timeout=0.001)
    litserve.LitServer(api, accelerator="cpu").run(port=int(sys.argv[1]), generate_client_file=False)
"""
MOSEC = f"""
import time
from mosec import Server, Worker

class Model(Worker):
    def forward(self, values):
        time.sleep({FIXED} + {EACH} * len(values))
        return [{{"y": 2 * value["x"]}} for value in values]

if __name__ == "__main__":
    server = Server()
    server.append_worker(Model, num=1, max_batch_size={MOST}, max_wait_time=1)
    server.run()
"""


class Peer:
    """A server: its script, its command, its path, and a request about a number."""

    def __init__(self, name: str, script: str, command: list[str], path: str, body: str) -> None:
        self.name, self.script, self.command, self.path, self.body = name, script, command, path, body

    def request(self, x: int) -> bytes:
        body = self.body.format(x=x).encode()
        head = f"POST {self.path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def peers(program: str) -> list[Peer]:
    serve = [program, "serve", "--batch", str(MOST), "--listen", "{port}", "--", sys.executable, "{script}"]
    python = [sys.executable, "{script}"]
    return [
        Peer("gangline", GANGLINE, serve, "/predict", "{x}"),
        Peer("LitServe", LITSERVE, [*python, "{port}"], "/predict", '{{"x": {x}}}'),
        Peer("mosec", MOSEC, [*python, "--port", "{port}", "--timeout", "60000"], "/inference", '{{"x": {x}}}'),
    ]


class Connection:
    """A connection that is kept."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def to(cls, port: int) -> Connection:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, request: bytes) -> tuple[bool, bytes]:
        self.writer.write(request)
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
        body = await self.reader.readexactly(length)
        return b" 200 " in head.split(b"\r\n")[0], body


@asynccontextmanager
async def running(peer: Peer, folder: str) -> AsyncIterator[int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = os.path.join(folder, f"serve_with_{peer.name.lower()}.py")
    with open(script, "w") as file:
        file.write(peer.script)
    command = [word.format(port=port, script=script) for word in peer.command]
    with open(f"{script}.log", "wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        until = time.monotonic() + 60
        while True:
            try:
                connection = await Connection.to(port)
                if (await connection.ask(peer.request(1)))[0]:
                    break
            except (OSError, asyncio.IncompleteReadError):
                pass
            if server.poll() is not None or time.monotonic() > until:
                with open(f"{script}.log") as said:
                    raise SystemExit(f"{peer.name} does not answer: {said.read()}")
            await asyncio.sleep(0.1)
        yield port
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGTERM)
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)


async def closed_loop(peer: Peer, port: int, clients: int, seconds: float) -> tuple[float, list[float]]:
    """The rate and the latencies of clients that ask one value after the other."""
    until = time.perf_counter() + seconds
    latencies: list[float] = []

    async def client(number: int) -> None:
        connection = await Connection.to(port)
        x = number
        while (begin := time.perf_counter()) < until:
            is_ok, body = await connection.ask(peer.request(x))
            assert is_ok and str(2 * x).encode() in body, body
            latencies.append(time.perf_counter() - begin)
            x += clients

    begin = time.perf_counter()
    await asyncio.gather(*(client(number) for number in range(clients)))
    return len(latencies) / (time.perf_counter() - begin), sorted(latencies)


async def open_loop(peer: Peer, port: int, moments: list[float]) -> list[float]:
    """The latencies, sorted, of values that come at these moments."""
    idle = [await Connection.to(port) for _ in range(64)]
    latencies: list[float] = []
    start = time.perf_counter()

    async def value(moment: float) -> None:
        connection = idle.pop() if idle else await Connection.to(port)
        is_ok, body = await connection.ask(peer.request(7))
        assert is_ok and b"14" in body, body
        latencies.append(time.perf_counter() - start - moment)
        idle.append(connection)

    async with asyncio.TaskGroup() if hasattr(asyncio, "TaskGroup") else Tasks() as tasks:
        for moment in moments:
            await asyncio.sleep(start + moment - time.perf_counter())
            tasks.create_task(value(moment))
    return sorted(latencies)


class Tasks:
    """What `asyncio.TaskGroup` is from Python 3.11 on, as far as it is needed here."""

    async def __aenter__(self) -> Tasks:
        self.all: list[asyncio.Task[None]] = []
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*self.all)

    def create_task(self, work: object) -> None:
        self.all.append(asyncio.ensure_future(work))  # type: ignore[arg-type]


def without_overhead(moments: list[float]) -> float:
    """The mean latency of a server that begins a list of all that waits as soon as its worker is free."""
    total, free, at = 0.0, 0.0, 0
    while at < len(moments):
        begin = max(free, moments[at])
        end = at
        while end < len(moments) and end - at < MOST and moments[end] <= begin:
            end += 1
        free = begin + FIXED + EACH * (end - at)
        total += sum(free - moment for moment in moments[at:end])
        at = end
    return total / len(moments)


def closed_form(load: float) -> float:
    """An upper bound of the mean latency, by Inoue (2021)."""
    rate = load / EACH
    light = (EACH + FIXED) / (2 * (1 - load)) * (1 + 2 * rate * FIXED + (1 - rate * FIXED) / (1 + load))
    heavy = 1.5 * FIXED / (1 - load) + EACH / 2 * (load + 2) / (1 - load**2)
    return min(light, heavy)


def poisson(load: float, seconds: float) -> list[float]:
    draw, moments, now = random.Random(load), [], 0.0
    while (now := now + draw.expovariate(load / EACH)) < seconds:
        moments.append(now)
    return moments


async def compare(program: str, seconds: float, folder: str) -> None:
    best = 64 / (FIXED + 64 * EACH)
    print(f"64 clients, one after the other; without overhead {best:.0f} values/s and {1e3 * 64 / best:.0f} ms\n")
    print("| server | values/s | p50 ms | p99 ms |\n|---|---:|---:|---:|")
    for peer in peers(program):
        async with running(peer, folder) as port:
            await closed_loop(peer, port, 64, 1)
            rate, all_of = await closed_loop(peer, port, 64, seconds)
            p50, p99 = (1e3 * at(share, all_of) for share in (0.5, 0.99))
            print(f"| {peer.name} | {rate:.0f} | {p50:.1f} | {p99:.1f} |", flush=True)
    print("\nvalues at random moments, mean latency in ms\n")
    print("| load | gangline | without overhead | ratio | closed form |\n|---:|---:|---:|---:|---:|")
    peer = peers(program)[0]
    alone = {}
    async with running(peer, folder) as port:
        for load in LOADS:
            moments = poisson(load, seconds)
            latencies, ideal = await open_loop(peer, port, moments), without_overhead(moments)
            mean = sum(latencies) / len(latencies)
            alone[load] = at(0.99, latencies)
            bound = 1e3 * closed_form(load)
            print(f"| {load} | {1e3 * mean:.1f} | {1e3 * ideal:.1f} | {mean / ideal:.2f} | {bound:.1f} |", flush=True)
    await compare_beside_a_background(program, seconds, folder, alone)


async def compare_beside_a_background(program: str, seconds: float, folder: str, alone: dict[float, float]) -> None:
    background = os.path.join(folder, "background.jsonl")
    with open(background, "w") as file:
        # More than the worker can take meanwhile.
        file.writelines(f"{x}\n" for x in range(round((len(LOADS) * seconds + 60) / EACH)))
    peer = peers(program)[0]
    peer.command[2:2] = ["--background", background]
    print(f"\nthe same beside a background; a full list takes {1e3 * (FIXED + EACH * MOST):.0f} ms\n")
    print("| load | p99 ms alone | beside | more | worker busy |\n|---:|---:|---:|---:|---:|")
    async with running(peer, folder) as port:
        for load in LOADS:
            begin, busy = time.perf_counter(), await busy_seconds(port)
            p99 = at(0.99, await open_loop(peer, port, poisson(load, seconds)))
            share = (await busy_seconds(port) - busy) / (time.perf_counter() - begin)
            p99, before = 1e3 * p99, 1e3 * alone[load]
            print(f"| {load} | {before:.1f} | {p99:.1f} | {p99 - before:.1f} | {100 * share:.1f} % |", flush=True)


async def busy_seconds(port: int) -> float:
    """The time that the worker has spent on lists that have ended."""
    _, text = await (await Connection.to(port)).ask(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n")
    lines = (line.rsplit(" ", 1) for line in text.decode().splitlines())
    return sum(float(line[1]) for line in lines if line[0].startswith("gangline_device_busy_seconds_sum"))


def at(share: float, latencies: list[float]) -> float:
    """The latency that this share of the sorted ones does not exceed."""
    return latencies[int(share * len(latencies))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--gangline", default="gangline", help="the program")
    parser.add_argument("--seconds", type=float, default=10, help="the time of each measurement")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(compare(args.gangline, args.seconds, folder))


if __name__ == "__main__":
    main()
