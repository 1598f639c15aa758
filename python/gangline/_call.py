"""One call of ``imap``: its items are fed by a thread of its own, and their records are put in order."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Callable, Optional

from gangline._errors import PoolError, full_text
from gangline._records import Record
from gangline._run import Item, Run
from gangline._transport import is_plain, pack

__all__ = ["Call", "Window"]

#: Items that each worker may have ahead while inputs and outputs are small: a slow item then holds up no worker.
PER_WORKER = 64

#: Work that each worker has ahead if its items are short, in seconds, and the most items that this may be.
AHEAD = 0.002
MOST_AHEAD = 1_024

#: Outputs that have to be small before more is read ahead.
FIRST = 8


class Window:
    """How many items may be in flight: a fixed number, or one that grows while items are small.

    >>> window = Window(None, workers=2, batch=1)
    >>> window.size
    16
    >>> for _ in range(100):
    ...     window.learn(0.01)
    >>> window.size
    128
    >>> for _ in range(200):
    ...     window.learn(0.00001)
    >>> window.size > 300
    True
    >>> window.stay_small()
    >>> window.size
    16
    """

    def __init__(self, fixed: Optional[int], workers: int, batch: int) -> None:
        self._slots = workers * batch
        self.size = self._least = fixed or max(16, 4 * self._slots)
        self._roomy = max(self._least, PER_WORKER * workers)
        self._seconds = AHEAD
        self._seen = 0
        self._may_grow = fixed is None

    def learn(self, seconds: float) -> None:
        """Take the time of an attempt into account."""
        self._seen += 1
        if self._may_grow:
            self._seconds += (seconds - self._seconds) / 16
            wanted = int(self._slots * AHEAD / max(self._seconds, 1e-6))
            if self._seen >= FIRST:
                self.size = max(self._roomy, min(wanted, MOST_AHEAD))

    def stay_small(self) -> None:
        """Do not grow any more: inputs or outputs take much memory."""
        if self._may_grow:
            self._may_grow = False
            self.size = self._least


class Call:
    """Feeds the program at most ``window`` items ahead of what the caller has taken.

    A thread pulls the input, so that finished records are handed out while the input blocks.
    """

    def __init__(
        self,
        run: Run,
        items: Iterable[Any],
        keys: Callable[[int, Any], Any],
        window: Window,
        observe: Callable[[Record], None],
    ) -> None:
        self._run = run
        self._items = items
        self._key = keys
        self._window = window
        self._observe = observe
        self._state = threading.Condition()
        # All of these under the lock. A record waits here until its turn.
        self._waiting: dict[int, Record] = {}
        self._in_flight = 0
        self._pulled = 0
        self._handed_out = 0
        self._is_exhausted = False
        self._is_stopped = False
        self._input_error: Optional[BaseException] = None

    def records(self) -> Iterator[Record]:
        """Start, and yield the records."""
        threading.Thread(target=self._feed, name="gangline-feeder", daemon=True).start()
        self._run.listen(self._wake)
        try:
            while (record := self._next()) is not None:
                yield record
                # In flight until now: the caller worked on it.
                with self._state:
                    self._in_flight -= 1
                    self._state.notify_all()
        finally:
            self._run.forget(self._wake)
            with self._state:
                self._is_stopped = True
                self._waiting.clear()
                self._state.notify_all()

    def _next(self) -> Optional[Record]:
        with self._state:
            while True:
                record = self._take()
                if record is not None:
                    return record
                if self._is_complete():
                    if self._input_error is not None:
                        raise self._input_error
                    return None
                self._state.wait()

    def _take(self) -> Optional[Record]:
        record = self._waiting.pop(self._handed_out, None)
        self._handed_out += record is not None
        return record

    def _is_complete(self) -> bool:
        if self._is_exhausted and self._handed_out == self._pulled:
            return True
        if self._run.has_ended:
            raise self._run.failure() or PoolError("the pool was closed")
        return False

    def _wake(self) -> None:
        with self._state:
            self._state.notify_all()

    # The feeder's thread.

    def _feed(self) -> None:
        try:
            source = iter(self._items)
            while self._may_pull():
                try:
                    value = next(source)
                except StopIteration:
                    with self._state:
                        self._is_exhausted = True
                    break
                with self._state:
                    index = self._pulled
                key = self._key(index, value)
                with self._state:
                    self._pulled += 1
                    self._in_flight += 1
                self._send(index, key, value)
        except BaseException as error:
            with self._state:
                self._input_error = error
                self._is_exhausted = True
        finally:
            self._wake()
            self._ended_feeding()

    def _may_pull(self) -> bool:
        """Wait for a permit. The permit comes before the pull, so that nothing is read too early."""
        with self._state:
            while self._in_flight >= self._window.size and not self._is_over():
                self._state.wait()
            return not self._is_over()

    def _is_over(self) -> bool:
        return self._is_stopped or self._run.is_closing or self._run.has_ended

    def _send(self, index: int, key: Any, value: Any) -> None:
        try:
            packed = pack(value)
            if not isinstance(packed, str):
                with self._state:
                    self._window.stay_small()
            self._run.feed(packed, Item(index, key, self._done))
        except Exception as error:
            self._done(Record(index, key, None, full_text(error), (), 0.0, 0))

    def _ended_feeding(self) -> None:
        """Do what is left after the last item."""

    # The thread that reads records.

    def _done(self, record: Record, is_large: bool = False) -> None:
        self._observe(record)
        with self._state:
            if is_large:
                self._window.stay_small()
            self._window.learn(record.seconds)
            if not self._is_stopped:
                self._place(record)
                self._state.notify_all()

    def _place(self, record: Record) -> None:
        self._waiting[record.index] = record


class CompletionCall(Call):
    """A call whose records are handed out as their items end."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._ended: deque[Record] = deque()

    def _take(self) -> Optional[Record]:
        if not self._ended:
            return None
        self._handed_out += 1
        return self._ended.popleft()

    def _place(self, record: Record) -> None:
        self._ended.append(record)


class JournaledCall(CompletionCall):
    """A call with a program of its own, which knows from a journal which items have no record.

    The window is then the program's. Its pipes bound what it reads ahead, and records that the caller has not taken
    keep it from reading on.
    """

    def _is_complete(self) -> bool:
        if not self._run.has_ended:
            return False
        error = self._run.failure()
        if error is not None or not self._is_exhausted:
            raise error or PoolError("the pool was closed")
        return True

    def _may_pull(self) -> bool:
        with self._state:
            return not self._is_over()

    def _send(self, index: int, key: Any, value: Any) -> None:
        if not is_plain(value):
            raise TypeError("with a journal, inputs are plain JSON: texts, numbers, None, lists and objects of these")
        super()._send(index, key, value)

    def _ended_feeding(self) -> None:
        self._run.end_input()

    def _place(self, record: Record) -> None:
        while len(self._ended) >= self._window.size and not (self._is_stopped or self._run.is_closing):
            self._state.wait()
        super()._place(record)
