"""What happened in a pool, as a text."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Optional

from gangline._errors import unicode_text
from gangline._records import Record

__all__ = ["Summary"]

#: Failures that are shown with their error.
MOST_FAILURES = 20


class _Worker:
    def __init__(self, record: Record) -> None:
        self.gpus = record.gpus
        self.items = 0
        self.failed = 0
        self.seconds = 0.0

    def line(self, number: int) -> str:
        gpus = f"gpu {' '.join(self.gpus)}" if self.gpus else "cpu"
        mean = self.seconds / self.items
        return f"  worker {number} on {gpus}: {self.items} items, {self.failed} failed, {mean:.3g} s each"


class Summary:
    """Counts records by worker, and keeps the first failures.

    >>> summary = Summary()
    >>> summary.add([Record(0, "a.mrc", None, "ValueError: bad", ("1",), 0.5, 2, 0)])
    >>> print(str(summary).partition(" in ")[0])
    1 items
    >>> print(str(summary).partition(": ")[2])
    0 ok, 1 failed, 1 tried again
      worker 0 on gpu 1: 1 items, 1 failed, 0.5 s each
    failed:
      0 (a.mrc): ValueError: bad
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started: Optional[float] = None
        self._last = 0.0
        self._items = 0
        self._failed = 0
        self._retried = 0
        self._left_out = 0
        self._workers: dict[int, _Worker] = {}
        self._failures: list[str] = []

    def start(self) -> None:
        """Begin to measure the time."""
        with self._lock:
            self._started = self._last = self._started or time.monotonic()

    def add(self, records: Sequence[Record], left_out: int = 0) -> None:
        """Count records, and items that an earlier run had done."""
        with self._lock:
            self._last = time.monotonic()
            self._left_out += left_out
            for record in records:
                self._add(record)

    def _add(self, record: Record) -> None:
        self._items += 1
        self._retried += record.attempts > 1
        if record.worker is not None:
            worker = self._workers.get(record.worker)
            if worker is None:
                worker = self._workers[record.worker] = _Worker(record)
            worker.items += 1
            worker.failed += record.error is not None
            worker.seconds += record.seconds
        if record.error is not None:
            self._failed += 1
            if len(self._failures) < MOST_FAILURES:
                key = "" if record.key is None else f" ({record.key})"
                self._failures.append(unicode_text(f"  {record.index}{key}: {record.error.splitlines()[0]}"))

    def __str__(self) -> str:
        with self._lock:
            taken = self._last - (self._started or self._last)
            retried = f", {self._retried} tried again" if self._retried else ""
            left_out = f", {self._left_out} already done" if self._left_out else ""
            lines = [
                f"{self._items} items in {taken:.3g} s: {self._items - self._failed} ok, "
                f"{self._failed} failed{retried}{left_out}"
            ]
            lines += [worker.line(number) for number, worker in sorted(self._workers.items())]
            if self._failures:
                lines += ["failed:", *self._failures]
            if self._failed > len(self._failures):
                lines.append(f"  and {self._failed - len(self._failures)} more")
            return "\n".join(lines)
