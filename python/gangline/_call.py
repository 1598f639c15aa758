"""One call of ``imap``: its items are fed by a thread of its own, and their records are put in order."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Callable, Optional, Union

from gangline._errors import PoolError, full_text
from gangline._records import Record
from gangline._run import Item, Run, check_owner
from gangline._transport import Packed, is_plain, pack

__all__ = ["Call", "CompletionCall", "JournaledCall", "Window"]

#: Items that each worker may have ahead while inputs and outputs are small: a slow item then holds up no worker.
PER_WORKER = 64

#: Work that each worker has ahead if its items are short, in seconds, and the most items that this may be.
AHEAD = 0.002
MOST_AHEAD = 1_024

#: Outputs that have to be small before more is read ahead.
FIRST = 8

#: Bytes after which lines are sent, if the input never blocks.
MOST_UNSENT = 64 << 10

_END = object()


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
        self._is_fixed = fixed is not None
        self._may_grow = not self._is_fixed

    @property
    def wake_at(self) -> int:
        """With how few items in flight more are read. A wake-up for each item would take longer than the item."""
        return self.size - 1 if self._is_fixed else self.size // 2

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
        observe: Callable[[Sequence[Record], int], None],
    ) -> None:
        self._run = run
        self._items = items
        self._key = keys
        self._window = window
        self._observe = observe
        self._lock = threading.Lock()
        # Two, so that a record does not wake the feeder, nor a permit the caller.
        self._has_records = threading.Condition(self._lock)
        self._has_room = threading.Condition(self._lock)
        # A record waits here until its turn.
        self._waiting: dict[int, Record] = {}
        self._handed_out = 0
        # The feeder writes one and the caller the other; both are read without the lock.
        self._pulled = 0
        self._taken = 0
        self._is_out_of_room = False
        self._is_exhausted = False
        self._is_stopped = False
        self._input_error: Optional[BaseException] = None

    def records(self) -> Iterator[Record]:
        """Start, and yield the records."""
        threading.Thread(target=self._feed, name="gangline-feeder", daemon=True).start()
        self._run.listen(self._wake)
        try:
            while records := self._next_records():
                for record in records:
                    yield record
                    # In flight until now: the caller worked on it.
                    self._taken += 1
                    if self._has_enough_room():
                        with self._lock:
                            self._offer_room()
        finally:
            self._run.forget(self._wake)
            with self._lock:
                self._is_stopped = True
                self._waiting.clear()
                self._has_room.notify()

    def _next_records(self) -> list[Record]:
        """Wait for records whose turn it is. After the last there are none."""
        check_owner(self._run.owner)
        with self._lock:
            while True:
                records = self._take()
                self._handed_out += len(records)
                if records:
                    return records
                if self._is_complete():
                    if self._input_error is not None:
                        raise self._input_error
                    return []
                self._has_records.wait()

    def _take(self) -> list[Record]:
        records: list[Record] = []
        while (record := self._waiting.pop(self._handed_out + len(records), None)) is not None:
            records.append(record)
        return records

    def _is_complete(self) -> bool:
        if self._is_exhausted and self._handed_out == self._pulled:
            return True
        if self._run.has_ended:
            raise self._run.failure() or PoolError("the pool was closed")
        return False

    def _wake(self) -> None:
        with self._lock:
            self._has_records.notify()
            self._has_room.notify()

    def _in_flight(self) -> int:
        return self._pulled - self._taken

    def _has_enough_room(self) -> bool:
        """Whether the feeder waits for room, and there is enough for a wake-up."""
        return self._is_out_of_room and self._in_flight() <= self._window.wake_at

    def _offer_room(self) -> None:
        # Cleared here and not by the feeder alone, which may run much later: each record would wake it again.
        self._is_out_of_room = False
        self._has_room.notify()

    def _wait_for_room(self) -> int:
        """Wait for permits with the lock, and return how many there are: none if no more are wanted."""
        while (room := self._window.size - self._in_flight()) <= 0 and not self._is_over():
            self._is_out_of_room = True
            # Looks again: the caller takes a record, and then looks whether room is wanted.
            if self._in_flight() > self._window.wake_at:
                self._has_room.wait()
            self._is_out_of_room = False
        return 0 if self._is_over() else room

    def _is_over(self) -> bool:
        return self._is_stopped or self._run.is_closing or self._run.has_ended

    # The feeder's thread.

    def _feed(self) -> None:
        try:
            source = iter(self._items)
            # An input that may block is sent item by item, so that none waits for the next.
            most = MOST_AHEAD if isinstance(self._items, (list, tuple, range)) else 1
            # The permits come before the pull, so that nothing is read too early.
            while not self._is_exhausted and (room := self._permits()):
                self._feed_some(source, min(room, most))
        except BaseException as error:
            self._input_error = error
            self._is_exhausted = True
        finally:
            self._wake()
            self._ended_feeding()

    def _permits(self) -> int:
        with self._lock:
            return self._wait_for_room()

    def _feed_some(self, source: Iterator[Any], most: int) -> None:
        """Send this many items, or those that are left."""
        lines: list[tuple[str, Item]] = []
        size = 0
        try:
            for _ in range(most):
                value = next(source, _END)
                if value is _END:
                    self._is_exhausted = True
                    break
                item = Item(self._pulled, self._key(self._pulled, value), self._done)
                self._pulled += 1
                packed = self._packed(item, value)
                if isinstance(packed, Packed):
                    # It may wait for memory that those before it have.
                    self._run.feed(lines)
                    lines, size = [], 0
                    self._run.feed([(self._line(self._run.hold(packed, item), item), item)])
                elif packed is not None:
                    lines.append((self._line(packed, item), item))
                    size += len(packed)
                if size > MOST_UNSENT:
                    self._run.feed(lines)
                    lines, size = [], 0
        finally:
            self._run.feed(lines)

    def _packed(self, item: Item, value: Any) -> Union[str, Packed, None]:
        """Return the form in which an input is sent. One that has none has failed."""
        try:
            packed = pack(value)
        except Exception as error:
            self._done([Record(item.index, item.key, None, full_text(error), (), 0.0, 0)])
            return None
        if not isinstance(packed, str):
            with self._lock:
                self._window.stay_small()
        return packed

    def _line(self, packed: str, _: Item) -> str:
        """Return the line that the program gets."""
        return packed

    def _ended_feeding(self) -> None:
        """Do what is left after the last item."""

    # The thread that reads records.

    def _done(self, records: Sequence[Record], has_large: bool = False, left_out: int = 0) -> None:
        self._observe(records, left_out)
        with self._lock:
            if has_large:
                self._window.stay_small()
            for record in records:
                self._window.learn(record.seconds)
                if not self._is_stopped:
                    self._place(record)
            self._has_records.notify()
            # The window grows here. Behind a slow item the caller takes no record, so it cannot offer the room.
            if self._has_enough_room():
                self._offer_room()

    def _place(self, record: Record) -> None:
        self._waiting[record.index] = record


class CompletionCall(Call):
    """A call whose records are handed out as their items end."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._ended: list[Record] = []

    def _take(self) -> list[Record]:
        records, self._ended = self._ended, []
        return records

    def _place(self, record: Record) -> None:
        self._ended.append(record)


class JournaledCall(CompletionCall):
    """A call with a program of its own, which knows from a journal which items have no record.

    The window is then the program's. Its pipes bound what it reads ahead, and records that the caller has not taken
    keep it from reading on.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._placed = 0

    def _is_complete(self) -> bool:
        if not self._run.has_ended:
            return False
        error = self._run.failure()
        if error is not None or not self._is_exhausted:
            raise error or PoolError("the pool was closed")
        return True

    def _in_flight(self) -> int:
        return self._placed - self._taken

    def _permits(self) -> int:
        return 0 if self._is_over() else MOST_AHEAD

    def _packed(self, item: Item, value: Any) -> Union[str, Packed, None]:
        if self._run.has_keys:
            if not is_plain(item.key):
                raise TypeError(
                    f"with a journal, keys are plain JSON: texts, numbers, lists and objects; got {item.key!r}"
                )
            return super()._packed(item, value)
        packed = super()._packed(item, value) if is_plain(value) else None
        if not isinstance(packed, str):
            raise TypeError(
                "with a journal, inputs are plain JSON up to 64 KiB, texts, numbers, None, lists and objects of these, "
                "or have keys"
            )
        return packed

    def _line(self, packed: str, item: Item) -> str:
        return f'{{"key":{json.dumps(item.key)},"value":{packed}}}' if self._run.has_keys else packed

    def _ended_feeding(self) -> None:
        self._run.end_input()

    def _place(self, record: Record) -> None:
        self._has_records.notify()
        self._wait_for_room()
        self._placed += 1
        super()._place(record)
