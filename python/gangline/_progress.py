"""A line of progress on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Optional

from gangline._records import Record

__all__ = ["Progress"]


class Progress:
    """Counts records. The line is redrawn ten times a second at most; elsewhere than in a terminal it appears once."""

    def __init__(self, description: str, total: Optional[int]) -> None:
        self._description = description
        self._total = total
        self._done = 0
        self._failed = 0
        self._left_out = 0
        self._started = time.monotonic()
        self._drawn = 0.0
        self._is_live = sys.stderr is not None and sys.stderr.isatty()

    def add(self, records: Sequence[Record], left_out: int = 0) -> None:
        """Count records, and items that an earlier run had done."""
        self._done += len(records)
        self._left_out += left_out
        self._failed += sum(not record.ok for record in records)
        now = time.monotonic()
        if self._is_live and now - self._drawn >= 0.1:
            self._drawn = now
            self._write(f"\r{self.line()}\x1b[K")

    def finish(self) -> None:
        """Leave the last line."""
        self._write(f"\r{self.line()}\x1b[K\n" if self._is_live else f"{self.line()}\n")

    def line(self) -> str:
        """Return the line as it is now.

        >>> Progress("Processing", 3).line()
        'Processing: 0/3 items in 0.0 s'
        """
        taken = time.monotonic() - self._started
        total = "" if self._total is None else f"/{self._total}"
        rate = f", {self._done / taken:.1f}/s" if self._done and taken > 0 else ""
        failed = f", {self._failed} failed" if self._failed else ""
        left_out = f", {self._left_out} already done" if self._left_out else ""
        return (
            f"{self._description}: {self._done + self._left_out}{total} items in {taken:.1f} s{rate}{failed}{left_out}"
        )

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (AttributeError, OSError, ValueError):
            pass  # It was closed.
