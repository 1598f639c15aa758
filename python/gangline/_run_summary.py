"""What becomes of the items of a run whose outputs are dropped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from gangline._records import Record
from gangline._report import Report

__all__ = ["MOST_FAILURES", "Counted", "RunSummary"]

#: Failed records that a `RunSummary` keeps.
MOST_FAILURES = 20


class RunSummary(NamedTuple):
    """What has become of the items of `Pipeline.run`. As a text, it is the report of the run."""

    #: How many items succeeded.
    ok: int
    #: How many failed.
    failed: int
    #: How many an earlier run had done, as the journal says.
    already_done: int
    #: The records of the first 20 that failed.
    failures: tuple[Record, ...]
    report: Report

    def __str__(self) -> str:
        return str(self.report)

    def __repr__(self) -> str:
        return f"RunSummary(ok={self.ok}, failed={self.failed}, already_done={self.already_done})"

    def _repr_html_(self) -> str:
        return self.report._repr_html_()


class Counted:
    """Counts the items that are read."""

    def __init__(self, items: Iterable[Any]) -> None:
        self.count = 0
        self._items = items

    def sized(self) -> Iterable[Any]:
        """Return the items, with their number if it is known."""
        if isinstance(self._items, (list, tuple, range)):
            self.count = len(self._items)
            return self._items
        return self._read()

    def _read(self) -> Iterator[Any]:
        for item in self._items:
            self.count += 1
            yield item
