"""Times the example ``micrographs.py`` beside ``multiprocessing.Pool``: ``python benches/segmentation.py --workers 2``.

Both run the same functions on the same made micrographs, of which one is broken, and take turns, each run in a process
of its own. A time includes the start of the workers, their model, and their end. It needs what the example needs.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Callable

import gangline

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
import micrographs

SCALE = 2.0

#: What a worker of multiprocessing calls, once its initializer has loaded the model.
segment: Callable[[str], object]


def on_gangline(model: str, out: Path, files: list[str], workers: int) -> int:
    work = functools.partial(micrographs.segment, out, SCALE)
    with gangline.Pool(functools.partial(micrographs.load, model), work, workers=workers) as pool:
        return sum(record.ok for record in pool.imap(files))


def on_multiprocessing(model: str, out: Path, files: list[str], workers: int) -> int:
    with multiprocessing.Pool(workers, start, (model, out, max(1, (os.cpu_count() or 1) // workers))) as pool:
        return sum(pool.imap(attempt, files))


def start(model: str, out: Path, threads: int) -> None:
    """Load the model in a worker of multiprocessing."""
    global segment
    session = micrographs.load(model, gangline.Context(worker=0, gpus=(), device="cpu", threads=threads))
    segment = functools.partial(micrographs.segment, out, SCALE, session)


def attempt(path: str) -> bool:
    """Segment one micrograph. Return False if it fails, since an exception would end the loop over the results."""
    try:
        segment(path)
    except Exception:
        return False
    return True


POOLS: dict[str, Callable[[str, Path, list[str], int], int]] = {
    "gangline": on_gangline,
    "multiprocessing": on_multiprocessing,
}


def be_a_run(name: str, made: str, workers: int) -> None:
    """Print the seconds of one run."""
    files = sorted(map(str, Path(made).glob("*.mrc")))
    with tempfile.TemporaryDirectory() as out:
        begin = time.perf_counter()
        done = POOLS[name](f"{made}/model.onnx", Path(out), files, workers)
        seconds = time.perf_counter() - begin
    assert done == len(files) - 1, f"{name}: {done} of {len(files)} are done, and one is broken"
    print(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=24, help="micrographs")
    parser.add_argument("--side", type=int, default=1024, help="pixels along a side")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        be_a_run(*args.run, args.workers)
        return
    times: dict[str, list[float]] = {name: [] for name in POOLS}
    with tempfile.TemporaryDirectory() as made:
        micrographs.make(Path(made), args.count, args.side)
        for name in list(POOLS) * args.rounds:
            command = [sys.executable, __file__, "--run", name, made, "--workers", str(args.workers)]
            # In a session of its own, as gangline's workers are: Linux divides processor time among sessions first.
            ended = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, start_new_session=True)
            times[name].append(float(ended.stdout))
    for name, each in times.items():
        print(f"{name}: best {min(each):.2f} s, median {statistics.median(each):.2f} s")
    ours, theirs = map(statistics.median, times.values())
    print(f"{args.count} micrographs of {args.side} pixels a side, {args.workers} workers: ratio {ours / theirs:.2f}")


if __name__ == "__main__":
    main()
