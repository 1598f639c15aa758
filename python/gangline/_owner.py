"""What has workers: a pool, or a pipeline."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable
from types import TracebackType
from typing import Optional, TypeVar

from gangline._call import check_owner
from gangline._errors import Closed, JobFailed
from gangline._native import NativeObjects, NativeReport
from gangline._options import Options
from gangline._records import Record
from gangline._report import Report, report_of
from gangline._types import Out
from gangline._workers import AnyWorkers, end_abandoned, end_all, write_reports

__all__ = ["WorkersOwner", "values_of"]

Owner = TypeVar("Owner", bound="WorkersOwner")


class WorkersOwner:
    """Has workers, and ends them. A fork of its process has a copy, which ends nothing."""

    #: What it is called in messages.
    _kind = "pool"

    def _own(self, options: Options) -> None:
        """Begin without workers."""
        # A call that is dropped may be ended within a method.
        self._lock = threading.RLock()
        self._owner = os.getpid()
        self._is_closed = False
        # Shared with the finalizer, which must not hold this object.
        self._workers: list[AnyWorkers] = []
        self._ending = options
        # The functions that threads call, which may name this object: for the garbage collector they belong to it.
        self._objects = NativeObjects()
        # Those whose report is asked for, and the report of such that have ended.
        self._last: Optional[AnyWorkers] = None
        self._last_report: Optional[NativeReport] = None
        self._finalizer = weakref.finalize(self, end_abandoned, self._owner, self._workers, options)

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed(f"the {self._kind} is closed")

    def report(self) -> Report:
        """Return what has happened: how items ended, the time of each worker, failures, and what limited the run.

        It is up to now, since the workers were started. That of a pipeline, and of a pool with a journal, is of the
        last call that has ended.
        """
        check_owner(self._owner)
        last = self._last
        current = None if last is None else last.report()
        return report_of(current or self._last_report)

    def _keep_report(self) -> None:
        """Keep the report of workers that have ended in place of those, which have descriptors."""
        last = self._last
        if last is not None and last not in self._workers:
            self._last_report = last.report() or self._last_report
            self._last = None

    def close(self) -> None:
        """End the workers in order. Items that were not handed out are given up, once those in work have ended."""
        try:
            end_all(self._take_workers(), self._ending)
        finally:
            self._keep_report()

    def terminate(self) -> None:
        """End the workers now, in the middle of their work."""
        for workers in self._take_workers():
            workers.kill()
        self._keep_report()

    def _take_workers(self) -> list[AnyWorkers]:
        """Refuse further calls, and return what is to be ended: in a fork nothing."""
        if os.getpid() != self._owner:
            # Without the lock, which a thread of the parent may have held when this process was forked.
            self._is_closed = True
            return []
        with self._lock:
            self._is_closed = True
            ending, self._workers[:] = list(self._workers), []
        return ending

    def _end(self, workers: AnyWorkers) -> None:
        """End the workers of one call, unless another thread has, or this is a fork."""
        if os.getpid() != self._owner:
            return
        with self._lock:
            if workers not in self._workers:
                return
            self._workers.remove(workers)
        try:
            if workers.has_failed:
                workers.kill()
                write_reports(workers, self._ending)
            else:
                end_all([workers], self._ending)
        finally:
            self._keep_report()

    def __enter__(self: Owner) -> Owner:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.terminate()


def values_of(records: Iterable[Record[Out]]) -> list[Out]:
    """Return the outputs. Raises :class:`JobFailed` for the first failure, and then takes no further record."""
    values = []
    for record in records:
        if not record.ok:
            # The exception holds this frame, and no further item is to be read.
            del records
            raise JobFailed(record)
        values.append(record.value)
    return values
