"""Futures of ``concurrent.futures`` for calls, which one thread of the package settles."""

from __future__ import annotations

import concurrent.futures
import functools
import logging
import os
import select
import threading
import time
from typing import Any, Optional

from gangline._call import check_owner
from gangline._calls import Begin, CallItem, Waiting
from gangline._errors import JobFailed
from gangline._records import Record
from gangline._types import Out
from gangline._workers import Workers

__all__ = ["CallFuture", "is_settling", "submit"]


class CallFuture(concurrent.futures.Future[Out]):
    """The future of a call. Its result is the output; the exception of a failed item is :class:`JobFailed`.

    ``cancel()`` gives the call up, as long as it is not answered: no worker begins it then, and the output of one that
    has begun it is dropped. That of an ``Executor`` gives up a call that no worker was given.
    """

    #: What became of the item, once it has succeeded or failed.
    record: Optional[Record[Out]] = None

    def __init__(self, calls: FutureCalls, *, waits_only: bool) -> None:
        super().__init__()
        self._calls = calls
        self._waits_only = waits_only
        self._number = -1
        self._workers: Optional[Workers] = None

    def cancel(self) -> bool:
        """Give the call up. Returns whether it is cancelled."""
        give_up = self._calls.give_up_waiting if self._waits_only else self._calls.give_up
        if not give_up(self._number):
            return self.cancelled()
        super().cancel()
        # For `wait` and `as_completed`, which count no cancelled future before.
        self.set_running_or_notify_cancel()
        return True

    def result(self, timeout: Optional[float] = None) -> Out:
        """Wait for the output, and return it."""
        self._await(timeout)
        return super().result(timeout)

    def exception(self, timeout: Optional[float] = None) -> Optional[BaseException]:
        """Wait until the call has ended, and return its error, or ``None``."""
        self._await(timeout)
        return super().exception(timeout)

    def _await(self, timeout: Optional[float]) -> None:
        """See to it that the answer comes."""
        if self.done():
            return
        # In a fork it does not.
        check_owner(self._calls.owner)
        if self._workers is not None:
            self._workers.refuse_own_thread()
        self._calls.serve(self, timeout)

    def _begin(self, begin: Begin, item: CallItem, deadline: Optional[float]) -> None:
        self._workers = item.workers
        self._number = self._calls.begin(begin, item.packed, deadline, functools.partial(self._settle, item))

    def _settle(self, item: CallItem, taken: Any) -> None:
        try:
            try:
                self.record = item.record(taken)
            except BaseException as error:
                self.set_exception(error)
                return
            if self.record.ok:
                self.set_result(self.record.value)
            else:
                self.set_exception(JobFailed(self.record))
        except BaseException:
            # Of a callback: that must not end the thread.
            logging.getLogger("concurrent.futures").exception("exception calling callback for %r", self)


class FutureCalls(Waiting):
    """The calls of all futures of a process, and the thread that settles them."""

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.Thread(target=self._serve, name="gangline-calls", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            self._answers.extend(self.native.take())
            self._settle()

    def is_own_thread(self) -> bool:
        """Whether this is the thread that settles the calls."""
        return threading.current_thread() is self._thread

    def serve(self, future: CallFuture[Any], timeout: Optional[float]) -> None:
        """Settle calls until a future is done, on the thread that would do that: a callback waits for the future."""
        if not self.is_own_thread():
            return
        end = None if timeout is None else time.monotonic() + timeout
        bell = select.poll()
        bell.register(self.native.fileno(), select.POLLIN)
        self._settle()
        while not future.done():
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                return
            bell.poll(None if left is None else left * 1000)
            self.settle_ready()


def submit(begin: Begin, item: CallItem, deadline: Optional[float], *, waits_only: bool = False) -> CallFuture[Any]:
    """Begin a call, and return its future. With ``waits_only``, it can be cancelled until it has a place."""
    future: CallFuture[Any] = CallFuture(future_calls(), waits_only=waits_only)
    future._begin(begin, item, deadline)
    return future


_calls: Optional[FutureCalls] = None
_lock = threading.Lock()


def future_calls() -> FutureCalls:
    """Return the calls of this process, and start their thread at the first use."""
    global _calls
    with _lock:
        if _calls is None:
            _calls = FutureCalls()
        return _calls


def is_settling() -> bool:
    """Whether this is the thread that settles futures."""
    return _calls is not None and _calls.is_own_thread()


def _forget_parent() -> None:
    """Begin anew in a fork, which does not have the thread, and in which the lock may be held."""
    global _calls, _lock
    _calls, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget_parent)
