"""Shows what pools do with faults: ``python benches/hangs.py``.

Each case runs in a process of its own with two workers. It has ended once that process has, and `hangs` says that it
had not after ``--limit`` seconds. Processes that are left 3 seconds later are counted, and killed. A peer that is not
installed is left out. The cases with a notebook need ipykernel.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import importlib.util
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional

HERE = Path(__file__).resolve()
WORKERS = 2
BAD = 3

Work = Callable[[Any], Any]
#: Yields a value or an exception for each item, and raises if the call cannot go on.
Results = Callable[[Work, Iterable[Any]], Iterator[Any]]
Then = Callable[[Results], None]


def nothing(x: Any) -> Any:
    return x


def one_ms(x: Any) -> Any:
    time.sleep(0.001)
    return x


def sleep_long(x: int) -> int:
    time.sleep(0 if x < WORKERS else 1000)
    return x


def kill_worker(x: int) -> int:
    if x == BAD:
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def exit_task(x: int) -> int:
    if x == BAD:
        sys.exit(3)
    return x


def unpicklable(x: int) -> Any:
    return threading.Lock() if x == BAD else x


class Unrebuildable(Exception):
    """Its arguments are not those of its class."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


def raise_unrebuildable(x: int) -> int:
    if x == BAD:
        raise Unrebuildable(x, 2)
    return x


def fork(x: int) -> Any:
    if x == BAD and os.fork() == 0:
        return "child"
    return x


def huge(x: int) -> Any:
    return b"x" * (300 << 20) if x == BAD else x


def print_much(x: int) -> int:
    if x == BAD:
        for _ in range(100 << 10):
            print("x" * 1023)
    return x


def load_fails(*_: Any) -> None:
    raise RuntimeError("no weights")


def call(_: Any, call: tuple[Work, Any]) -> Any:
    work, x = call
    return work(x)


def use_gangline(load: Optional[Work], then: Then) -> None:
    import gangline

    with gangline.Pool(load, call, workers=WORKERS) as pool:

        def results(work: Work, items: Iterable[Any]) -> Iterator[Any]:
            for record in pool.imap((work, item) for item in items):
                yield record.value if record.ok else gangline.JobFailed(record)

        then(results)


def use_multiprocessing(load: Optional[Work], then: Then) -> None:
    with multiprocessing.get_context("spawn").Pool(WORKERS, initializer=load) as pool:

        def results(work: Work, items: Iterable[Any]) -> Iterator[Any]:
            found = pool.imap(work, items)
            while True:
                try:
                    yield next(found)
                except StopIteration:
                    return
                except Exception as error:
                    yield error

        then(results)


def use_futures(load: Optional[Work], then: Then) -> None:
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(WORKERS, mp_context=context, initializer=load) as pool:

        def results(work: Work, items: Iterable[Any]) -> Iterator[Any]:
            if not isinstance(items, range):
                yield from pool.map(work, items)
                return
            for future in [pool.submit(work, item) for item in items]:
                try:
                    yield future.result()
                except Exception as error:
                    yield error

        then(results)


def use_joblib(load: Optional[Work], then: Then) -> None:
    import joblib

    with joblib.Parallel(n_jobs=WORKERS, return_as="generator") as parallel:
        then(lambda work, items: parallel(joblib.delayed(work)(item) for item in items))


def use_mpire(load: Optional[Work], then: Then) -> None:
    import mpire

    with mpire.WorkerPool(WORKERS, start_method="spawn") as pool:
        then(lambda work, items: pool.imap(work, items, chunk_size=1, worker_init=load))


PEERS = {
    "gangline": use_gangline,
    "multiprocessing": use_multiprocessing,
    "futures": use_futures,
    "joblib": use_joblib,
    "mpire": use_mpire,
}


def note(text: str) -> None:
    """Write a line for the process that measures, at once."""
    with open(os.environ["HANGS_NOTES"], "a") as file:
        file.write(f"{text}\n")


def drain(work: Work, count: int = 8) -> Then:
    def then(results: Results) -> None:
        try:
            for expected, value in enumerate(results(work, range(count))):
                is_right = value == expected or isinstance(value, bytes)
                note("error" if isinstance(value, Exception) else "ok" if is_right else "wrong")
        except Exception as error:
            note(f"raises {type(error).__name__}")

    return then


def ten_thousand(results: Results) -> None:
    begun = time.monotonic()
    count = sum(1 for _ in results(one_ms, range(10_000)))
    note(f"{count:,} in {time.monotonic() - begun:.1f} s")


def endless(results: Results) -> None:
    pulled = 0

    def inputs() -> Iterator[int]:
        nonlocal pulled
        while True:
            yield pulled
            pulled += 1

    found = results(nothing, inputs())
    for _ in range(100):
        next(found)
    time.sleep(1)
    note(f"reads {pulled - 99:,} ahead")


def blocking(results: Results) -> None:
    def inputs() -> Iterator[int]:
        yield from range(4)
        time.sleep(1000)

    found = results(nothing, inputs())
    for _ in range(4):
        next(found)
        note("ok")


class Case(NamedTuple):
    """One row of the table."""

    name: str
    then: Then
    load: Optional[Work] = None
    #: The signal that the process gets once there are results, and whether its group gets it as well.
    signal: Optional[signal.Signals] = None
    in_notebook: bool = False


CASES = {
    "killed": Case("a worker is killed by SIGKILL", drain(kill_worker)),
    "exit": Case("a task calls `sys.exit`", drain(exit_task)),
    "unpicklable": Case("a result cannot be pickled", drain(unpicklable)),
    "unrebuildable": Case("an exception cannot be rebuilt", drain(raise_unrebuildable)),
    "load": Case("`load` (the initializer) raises", drain(nothing), load=load_fails),
    "blocking": Case("the input blocks after 4 items", blocking),
    "endless": Case("an endless input", endless),
    "huge": Case("a result of 300 MB", drain(huge)),
    "fork": Case("a task forks, and its child returns", drain(fork)),
    "print": Case("a task prints 100 MB", drain(print_much)),
    "short": Case("10,000 tasks of 1 ms", ten_thousand),
    "ctrl-c": Case("Ctrl-C in a script", drain(sleep_long), signal=signal.SIGINT),
    "notebook": Case("Ctrl-C in a notebook", drain(sleep_long), signal=signal.SIGINT, in_notebook=True),
    "driver": Case("the script is killed by SIGKILL", drain(sleep_long), signal=signal.SIGKILL),
}


def run(peer: str, case: str) -> None:
    """Run a case in this process."""
    try:
        PEERS[peer](CASES[case].load, CASES[case].then)
    except KeyboardInterrupt:
        note("raises KeyboardInterrupt")
        raise


class Trial:
    """One case with one peer."""

    def __init__(self, peer: str, name: str, notes: Path, limit: float) -> None:
        self.case = CASES[name]
        self._arguments = [peer, name]
        self._notes = notes
        self._limit = limit
        self._tag = f"HANGS_TAG={uuid.uuid4()}"
        self._environment = {**os.environ, "HANGS_NOTES": str(notes), **dict([self._tag.split("=")])}

    def cell(self) -> str:
        """Return what happened."""
        self._notes.write_text("")
        try:
            has_ended = self._in_notebook() if self.case.in_notebook else self._in_script()
        except BaseException:
            self._kill_all()
            raise
        said = self._said()
        if not has_ended:
            self._kill_all()
            return f"{said}, then **hangs**" if said else "**hangs**"
        end = time.monotonic() + 3
        while self._processes() and time.monotonic() < end:
            time.sleep(0.05)
        left = self._kill_all()
        ended = ["ends"] if self.case.signal else []
        return ", ".join(filter(None, [*(ended if self.case.signal else [said]), f"**leaves {left}**" if left else ""]))

    def _said(self) -> str:
        notes = Counter(self._notes.read_text().splitlines())
        ok = notes.pop("ok", 0)
        texts = [f"{ok} ok"] if ok else []
        errors = notes.pop("error", 0)
        texts += [f"{errors} error{'s' * (errors > 1)}"] if errors else []
        texts += [f"{count} wrong" if text == "wrong" else text for text, count in notes.items()]
        return ", ".join(texts)

    def _in_script(self) -> bool:
        command = [sys.executable, str(HERE), "--one", *self._arguments]
        null = subprocess.DEVNULL
        process = subprocess.Popen(command, stdout=null, stderr=null, start_new_session=True, env=self._environment)
        end = time.monotonic() + self._limit
        if self.case.signal is not None:
            self._wait_for_results(end)
            (os.killpg if self.case.signal == signal.SIGINT else os.kill)(process.pid, self.case.signal)
            end = time.monotonic() + self._limit
        try:
            process.wait(end - time.monotonic())
        except subprocess.TimeoutExpired:
            return False
        return True

    def _wait_for_results(self, end: float) -> None:
        while self._notes.read_text().count("ok") < WORKERS and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(0.5)

    def _in_notebook(self) -> bool:
        from jupyter_client.manager import KernelManager

        manager = KernelManager()
        null = subprocess.DEVNULL
        manager.start_kernel(env=self._environment, stdout=null, stderr=null)
        client = manager.client()
        client.start_channels()
        try:
            client.wait_for_ready(timeout=self._limit)
            path = str(HERE.parent)
            client.execute(f"import sys; sys.path.insert(0, {path!r}); import hangs", reply=True, timeout=self._limit)
            cell = client.execute(f"hangs.run(*{self._arguments})")
            self._wait_for_results(time.monotonic() + self._limit)
            manager.interrupt_kernel()
            while (reply := client.get_shell_msg(timeout=self._limit))["parent_header"]["msg_id"] != cell:
                pass
            next_cell = client.execute("1 + 1", reply=True, timeout=self._limit)
            return bool(reply["content"].get("ename") == "KeyboardInterrupt" and next_cell["content"]["status"] == "ok")
        except Exception:
            return False
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)

    def _processes(self) -> list[int]:
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                is_zombie = (folder / "stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
                if self._tag.encode() in (folder / "environ").read_bytes() and not is_zombie:
                    found.append(int(folder.name))
            except OSError:
                continue
        return found

    def _kill_all(self) -> int:
        left = self._processes()
        for process in left:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
        return len(left)


def cell(peer: str, name: str, limit: float) -> str:
    """Return what a peer does in a case."""
    if peer == "joblib" and CASES[name].load is not None:
        return "has none"
    if CASES[name].in_notebook and not importlib.util.find_spec("ipykernel"):
        return ""
    with tempfile.TemporaryDirectory() as folder:
        return Trial(peer, name, Path(folder) / "notes", limit).cell()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, default=20.0, help="seconds that a case gets")
    parser.add_argument("--case", choices=CASES, action="append", help="only these")
    parser.add_argument("--peer", choices=PEERS, action="append", help="only these")
    parser.add_argument("--one", nargs=2, metavar=("PEER", "CASE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        run(*options.one)
        return
    inside = {"futures": "concurrent.futures"}
    peers = options.peer or [peer for peer in PEERS if importlib.util.find_spec(inside.get(peer, peer))]
    print(f"{WORKERS} workers, Python {sys.version.split()[0]}; 8 items, of which one has the fault\n")
    print(f"| | {' | '.join(peers)} |\n|---|{'---|' * len(peers)}", flush=True)
    for name in options.case or CASES:
        print(f"| {CASES[name].name} |", end="", flush=True)
        for peer in peers:
            print(f" {cell(peer, name, options.limit)} |", end="", flush=True)
        print(flush=True)


if __name__ == "__main__":
    main()
