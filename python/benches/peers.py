"""Times gangline's pool beside others: ``python benches/peers.py --workers 8``.

Each figure is the median of several runs in a process of its own, in which the workers have been started before,
except for the first figure. A peer that is not installed is left out; one that has not ended after ``--limit``
seconds has no figure.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import importlib.util
import itertools
import json
import multiprocessing
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, Callable

import gangline

Work = Callable[[Any], Any]
Imap = Callable[[Work, Iterable[Any]], Iterator[Any]]


def nothing(x: Any) -> Any:
    return x


def one_ms(x: Any) -> Any:
    time.sleep(0.001)
    return x


def skewed(x: int) -> int:
    time.sleep(0.5 if x == 0 else 0.01)
    return x


def killed(x: int) -> int:
    if x == 10:
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def call(_: None, call: tuple[Work, Any]) -> Any:
    work, x = call
    return work(x)


def array(_: int) -> Any:
    import numpy as np

    return np.ones(1 << 20)


def use_gangline(workers: int, then: Callable[[Imap], None]) -> None:
    with gangline.Pool(None, call, workers=workers) as pool:
        then(lambda work, items: (record.value for record in pool.imap((work, item) for item in items)))


def use_multiprocessing(workers: int, then: Callable[[Imap], None]) -> None:
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        then(pool.imap)


def use_futures(workers: int, then: Callable[[Imap], None]) -> None:
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(workers, mp_context=context) as pool:
        then(pool.map)


def use_joblib(workers: int, then: Callable[[Imap], None]) -> None:
    import joblib

    parallel = joblib.Parallel(n_jobs=workers, return_as="generator")
    with parallel:
        then(lambda work, items: parallel(joblib.delayed(work)(item) for item in items))


def use_mpire(workers: int, then: Callable[[Imap], None]) -> None:
    import mpire

    with mpire.WorkerPool(workers, start_method="spawn", keep_alive=True) as pool:
        then(lambda work, items: pool.imap(work, items, chunk_size=1))


PEERS = {
    "gangline": use_gangline,
    "multiprocessing": use_multiprocessing,
    "futures": use_futures,
    "joblib": use_joblib,
    "mpire": use_mpire,
}


def drain(records: Iterator[Any]) -> int:
    return sum(1 for _ in records)


def large(imap: Imap) -> None:
    import numpy as np

    drain(imap(nothing, itertools.repeat(np.ones(1 << 20), 100)))


#: What is measured: its name, how a figure is made of seconds, and the work.
CASES: dict[str, tuple[str, Callable[[float], float], Callable[[Imap], object]]] = {
    "start": ("first result, ms", lambda taken: taken * 1e3, lambda imap: drain(imap(nothing, [0]))),
    "empty": ("empty task, us", lambda taken: taken * 1e6 / 10_000, lambda imap: drain(imap(nothing, range(10_000)))),
    "short": ("task of 1 ms, tasks/s", lambda taken: 2_000 / taken, lambda imap: drain(imap(one_ms, range(2_000)))),
    "skewed": ("a slow one in front, s", lambda taken: taken, lambda imap: drain(imap(skewed, range(200)))),
    "large": ("8 MiB there and back, MiB/s", lambda taken: 1_600 / taken, large),
    "killed": ("a worker is killed, s", lambda taken: taken, lambda imap: drain(imap(killed, range(100)))),
}


def measure(peer: str, case: str, workers: int) -> None:
    """Print the seconds that a case takes."""

    def run(imap: Imap) -> None:
        if case != "start":
            # Starts all workers, and imports what they need.
            drain(imap(array, range(4 * workers)))
        begun = time.perf_counter() if case != "start" else entered
        how = "ended"
        try:
            CASES[case][2](imap)
        except Exception as error:
            how = type(error).__name__
        print(json.dumps([time.perf_counter() - begun, how]), flush=True)

    entered = time.perf_counter()
    PEERS[peer](workers, run)


def figure(peer: str, case: str, options: argparse.Namespace) -> str:
    command = [sys.executable, __file__, "--workers", str(options.workers), "--one", peer, case]
    seconds = []
    for _ in range(options.runs):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            taken, how = json.loads(process.communicate(timeout=options.limit)[0] or '[0, "died"]')
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return f"hangs ({options.limit:.0f} s)"
        if how != "ended":
            return str(how)
        seconds.append(taken)
    return f"{CASES[case][1](statistics.median(seconds)):.4g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("--one", nargs=2, metavar=("PEER", "CASE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        measure(*options.one, options.workers)
        return
    inside = {"futures": "concurrent.futures"}
    peers = [peer for peer in PEERS if importlib.util.find_spec(inside.get(peer, peer))]
    print(f"{options.workers} workers, Python {sys.version.split()[0]}, median of {options.runs}\n")
    print(f"| | {' | '.join(peers)} |\n|---|{'---:|' * len(peers)}", flush=True)
    for case, (name, _, _) in CASES.items():
        print(f"| {name} | {' | '.join(figure(peer, case, options) for peer in peers)} |", flush=True)


if __name__ == "__main__":
    main()
