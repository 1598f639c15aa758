"""Times gangline's pool beside others: ``python benches/peers.py --workers 8``.

Each figure is the best of several runs, each in a process of its own, in which the workers have been started before,
except for the first figure. The peers take turns, so that other load on the machine meets them all. A peer that is not
installed is left out; one that has not ended after ``--limit`` seconds has no figure.
"""

from __future__ import annotations

import argparse
import concurrent.futures.process
import importlib.util
import json
import multiprocessing.pool
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional

import gangline

Work = Callable[[Any], Any]
Imap = Callable[[Iterable[Any]], Iterable[Any]]

#: Loaded by its first use. The time to a first result is that of a pool, and not that of imports.
gangline.Pool  # noqa: B018

#: Inputs in a list, where lists are compared.
LIST = 32

#: A folder in which each worker of gangline's pool makes a file.
READY = "PEERS_READY"

#: How the peers that let one choose start their processes. Another process measures each figure.
METHOD = os.environ.get("PEERS_METHOD", "spawn")


def nothing(x: Any) -> Any:
    return x


def one_ms(x: Any) -> Any:
    time.sleep(0.001)
    return x


def ten_ms(x: Any) -> Any:
    time.sleep(0.01)
    return x


def fixed_cost(x: Any) -> Any:
    time.sleep(0.05)
    return x


def skewed(x: int) -> int:
    time.sleep(0.5 if x == 0 else 0.01)
    return x


def load(_: gangline.Context) -> None:
    import numpy  # noqa: F401

    Path(os.environ[READY], str(os.getpid())).touch()


class Single:
    """A function of the peers, as a pool of gangline calls it."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def __call__(self, _: None, x: Any) -> Any:
        return self._work(x)


class InLists(Single):
    """The same with lists: one call of a function that costs as much for a list as for an item."""

    def __call__(self, _: None, xs: list[Any]) -> list[Any]:
        if self._work is fixed_cost:
            time.sleep(0.05)
            return xs
        return [self._work(x) for x in xs]


class Case(NamedTuple):
    """What is measured."""

    name: str
    #: Makes the figure of the seconds.
    figure: Callable[[float, int], float]
    work: Work
    items: Callable[[], Sequence[Any]]
    #: How many inputs go to a worker at once; `None` for what the peer does by itself.
    chunk: Optional[int] = None
    only_gangline: bool = False


def arrays(megabytes: int, count: int) -> Callable[[], Sequence[Any]]:
    def items() -> Sequence[Any]:
        import numpy as np

        # Not one for all: a peer that sends several inputs at once would pickle it once for them.
        different = [np.full(megabytes << 17, at) for at in range(count // 4)]
        return [different[at % len(different)] for at in range(count)]

    return items


CASES = {
    "start": Case("first result, ms", lambda taken, _: taken * 1e3, nothing, lambda: [0]),
    "lists": Case(
        f"empty tasks in lists of {LIST}, us each",
        lambda taken, _: taken * 1e6 / 50_000,
        nothing,
        lambda: range(50_000),
        LIST,
    ),
    "empty": Case("empty tasks, us each", lambda taken, _: taken * 1e6 / 10_000, nothing, lambda: range(10_000)),
    "short": Case("tasks of 1 ms, tasks/s", lambda taken, _: 4_000 / taken, one_ms, lambda: range(4_000)),
    "ten": Case(
        "tasks of 10 ms, % above the ideal",
        lambda taken, workers: (taken / (1_000 * 0.01 / workers) - 1) * 100,
        ten_ms,
        lambda: range(1_000),
    ),
    "skewed": Case("tasks of 10 ms behind one of 0.5 s, s", lambda taken, _: taken, skewed, lambda: range(200)),
    "single": Case("fixed cost of 50 ms, s", lambda taken, _: taken, fixed_cost, lambda: range(160), None, True),
    "batch": Case("the same in lists of 8, s", lambda taken, _: taken, fixed_cost, lambda: range(160), 8, True),
    "1 MB": Case("1 MiB there and back, MiB/s", lambda taken, _: 800 / taken, nothing, arrays(1, 400)),
    "8 MB": Case("8 MiB there and back, MiB/s", lambda taken, _: 1_600 / taken, nothing, arrays(8, 100)),
}


def use_gangline(workers: int, case: Case, then: Callable[[Imap], None]) -> None:
    work = Single(case.work) if case.chunk is None else InLists(case.work)
    is_start = case is CASES["start"]
    options = {"workers": workers, "batch": case.chunk}
    with tempfile.TemporaryDirectory() as folder:
        # Before the workers start: each gets the environment of that time.
        os.environ[READY] = folder
        with gangline.Pool(None if is_start else load, work, preload=not is_start, **options) as pool:
            while not is_start and len(os.listdir(folder)) < workers:
                pool.map([0])
            then(lambda items: (record.value for record in pool.imap(items)))


def warm_up(workers: int, imap: Callable[[Work, Iterable[Any]], Iterable[Any]]) -> None:
    """Let all workers of a peer start, and import what they need."""
    drain(imap(import_numpy, range(4 * workers)))


def import_numpy(x: int) -> int:
    import numpy  # noqa: F401

    time.sleep(0.1)
    return x


def use_multiprocessing(workers: int, case: Case, then: Callable[[Imap], None]) -> None:
    with multiprocessing.get_context(METHOD).Pool(workers) as pool:
        if case is not CASES["start"]:
            warm_up(workers, pool.imap)
        then(lambda items: pool.imap(case.work, items, case.chunk or 1))


def use_futures(workers: int, case: Case, then: Callable[[Imap], None]) -> None:
    context = multiprocessing.get_context(METHOD)
    with concurrent.futures.ProcessPoolExecutor(workers, mp_context=context) as pool:
        if case is not CASES["start"]:
            warm_up(workers, pool.map)
        then(lambda items: pool.map(case.work, items, chunksize=case.chunk or 1))


def use_joblib(workers: int, case: Case, then: Callable[[Imap], None]) -> None:
    import joblib

    with joblib.Parallel(n_jobs=workers, return_as="generator", batch_size=case.chunk or "auto") as parallel:

        def imap(work: Work, items: Iterable[Any]) -> Iterable[Any]:
            return parallel(joblib.delayed(work)(item) for item in items)

        if case is not CASES["start"]:
            warm_up(workers, imap)
        then(lambda items: imap(case.work, items))


def use_mpire(workers: int, case: Case, then: Callable[[Imap], None]) -> None:
    import mpire

    with mpire.WorkerPool(workers, start_method=METHOD, keep_alive=True) as pool:

        def imap(work: Work, items: Iterable[Any], chunk: Optional[int]) -> Iterable[Any]:
            # A tuple, since it takes items of other kinds apart.
            return pool.imap(work, [(item,) for item in items], chunk_size=chunk)

        if case is not CASES["start"]:
            warm_up(workers, lambda work, items: imap(work, items, 1))
        then(lambda items: imap(case.work, items, case.chunk))


PEERS = {
    "gangline": use_gangline,
    "multiprocessing": use_multiprocessing,
    "futures": use_futures,
    "joblib": use_joblib,
    "mpire": use_mpire,
}


def drain(results: Iterable[Any]) -> int:
    return sum(1 for _ in results)


def measure(peer: str, case: str, options: argparse.Namespace) -> None:
    """Print the seconds that a case takes."""

    def run(imap: Imap) -> None:
        items = CASES[case].items()
        if options.used:
            drain(imap(items))
        begun = time.perf_counter() if case != "start" else entered
        drained = drain(imap(items))
        assert drained == len(items), "a result is missing"
        print(json.dumps(time.perf_counter() - begun), flush=True)

    entered = time.perf_counter()
    PEERS[peer](options.workers, CASES[case], run)


def timed(peer: str, case: str, options: argparse.Namespace) -> Optional[float]:
    """Return the seconds that one run takes, if it ends."""
    command = [sys.executable, __file__, "--workers", str(options.workers), "--one", peer, case]
    command += ["--used"] * options.used
    environment = {**os.environ, "PEERS_METHOD": options.method}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        return float(process.communicate(timeout=options.limit)[0])
    except (subprocess.TimeoutExpired, ValueError):
        return None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def cells(case: str, peers: Iterable[str], options: argparse.Namespace) -> list[str]:
    """Return the figures of a case, one for each peer."""
    best: dict[str, float] = {}
    for _ in range(options.runs):
        for peer in peers:
            if peer == "gangline" or not CASES[case].only_gangline:
                taken = timed(peer, case, options)
                if taken is not None:
                    best[peer] = min(taken, best.get(peer, taken))
    return [f"{CASES[case].figure(best[peer], options.workers):,.3g}" if peer in best else "" for peer in peers]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("--case", choices=CASES, action="append", help="only these")
    parser.add_argument("--peer", choices=PEERS, action="append", help="only these")
    parser.add_argument("--method", choices=multiprocessing.get_all_start_methods(), default="spawn")
    parser.add_argument("--used", action="store_true", help="run each pool once before it is measured")
    parser.add_argument("--one", nargs=2, metavar=("PEER", "CASE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        measure(*options.one, options)
        return
    inside = {"futures": "concurrent.futures"}
    peers = options.peer or [peer for peer in PEERS if importlib.util.find_spec(inside.get(peer, peer))]
    print(f"{options.workers} workers, Python {sys.version.split()[0]}, best of {options.runs}\n")
    print(f"| | {' | '.join(peers)} |\n|---|{'---:|' * len(peers)}", flush=True)
    for case in options.case or CASES:
        print(f"| {CASES[case].name} | {' | '.join(cells(case, peers, options))} |", flush=True)


if __name__ == "__main__":
    main()
