"""Progress on standard error: a line, or a bar of ``tqdm`` in a notebook."""

from __future__ import annotations

import importlib
import sys
import time
import warnings
from collections.abc import Sequence
from typing import Any, Callable, Optional

from gangline._records import Record

__all__ = ["Progress"]


class Progress:
    """Counts records, and shows how many there are.

    On a terminal it is a line that is redrawn ten times a second at most. In a notebook it is a bar of ``tqdm.auto``,
    if that is installed, or else a line that is redrawn each second. Elsewhere the line appears once, at the end. It
    is drawn where records are taken, so no thread is needed.
    """

    def __init__(self, description: str, total: Optional[int], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._description = description
        self._total = total
        self._done = 0
        self._failed = 0
        self._left_out = 0
        self._clock = clock
        self._started = clock()
        self._drawn: Optional[float] = None
        # Of the line on the screen: what is shorter is padded.
        self._width = 0
        self._every: Optional[float] = None
        self._bar: Any = None
        if is_notebook():
            self._every = 1.0
            self._bar = bar_of(description, total)
        elif sys.stderr is not None and sys.stderr.isatty():
            self._every = 0.1

    def add(self, records: Sequence[Record], left_out: int = 0) -> None:
        """Count records, and items that an earlier run had done."""
        failed = sum(not record.ok for record in records)
        self._done += len(records)
        self._left_out += left_out
        self._failed += failed
        if self._bar is not None:
            if failed:
                self._bar.set_postfix(failed=self._failed, refresh=False)
            self._bar.update(len(records) + left_out)
        elif self._every is not None and (self._drawn is None or self._clock() - self._drawn >= self._every):
            self._drawn = self._clock()
            self._draw()

    def finish(self) -> None:
        """Leave what was shown last."""
        if self._bar is not None:
            self._bar.close()
        elif self._every is None:
            self._write(f"{self.line()}\n")
        else:
            self._draw()
            self._write("\n")

    def line(self) -> str:
        """Return the line as it is now.

        >>> Progress("Processing", 3).line()
        'Processing: 0/3 items in 0.0 s'
        """
        taken = self._clock() - self._started
        total = "" if self._total is None else f"/{self._total}"
        rate = f", {self._done / taken:.1f}/s" if self._done and taken > 0 else ""
        failed = f", {self._failed} failed" if self._failed else ""
        left_out = f", {self._left_out} already done" if self._left_out else ""
        return (
            f"{self._description}: {self._done + self._left_out}{total} items in {taken:.1f} s{rate}{failed}{left_out}"
        )

    def _draw(self) -> None:
        line = self.line()
        # A notebook has no sequence that clears the rest of a line.
        self._write(f"\r{line.ljust(self._width)}")
        self._width = len(line)

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (AttributeError, OSError, ValueError):
            pass  # It was closed.


def is_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython: Any = sys.modules.get("IPython")
    if ipython is None:
        return False
    try:
        return getattr(ipython.get_ipython(), "kernel", None) is not None
    except Exception:
        return False


def bar_of(description: str, total: Optional[int]) -> Any:
    """Return a bar of ``tqdm.auto``. ``None`` without a ``tqdm`` that works."""
    try:
        with warnings.catch_warnings():
            # Without ipywidgets the bar is a text, which is all that the warning says.
            warnings.simplefilter("ignore")
            tqdm = importlib.import_module("tqdm.auto").tqdm
            # By default, a thread looks after all bars, also after their end.
            bar = type("Bar", (tqdm,), {"monitor_interval": 0})
            return bar(total=total, desc=description, unit=" items")
    except Exception:
        return None
