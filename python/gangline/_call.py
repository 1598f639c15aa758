"""One call of ``imap``: its items are read by a thread of its own, and their records come in order."""

from __future__ import annotations

import contextvars
import os
import threading
from collections.abc import AsyncIterable, Iterable, Iterator, Sequence
from typing import Any, Callable, Optional, Union

from gangline._errors import Forked, PoolError, first_line, full_text
from gangline._objects import Shared
from gangline._pickling import Sender, Unreadable
from gangline._records import Record
from gangline._stages import StageValues
from gangline._workers import AnyWorkers

__all__ = ["MOST_TAKEN", "AnyValues", "Call", "Taken", "check_owner", "record_of"]

#: Items that are read at once from an input that cannot block.
MOST_AT_ONCE = 256

#: Records that are taken at once.
MOST_TAKEN = 64

#: An index, the worker, the number of attempts, seconds, and how the item has ended: the pickled output, the text of
#: its error, or ``None`` if an earlier run had done it.
Taken = tuple[int, Optional[int], int, float, Any]

#: The ids of the GPUs of each worker; ``None`` of one on another machine.
Places = Sequence[Optional[tuple[str, ...]]]

#: How values go to workers and come back.
AnyValues = Union[Sender, Shared, StageValues]

_END = object()


class Call:
    """The items and the records of a call. A window bounds how many items were read whose record was not taken."""

    def __init__(
        self,
        workers: AnyWorkers,
        values: AnyValues,
        items: Union[Iterable[Any], AsyncIterable[Any]],
        keys: Callable[[int, Any], Any],
        name: Optional[Callable[[Any, Any], str]],
        observe: Callable[[Sequence[Record], int], None],
        owner: int,
    ) -> None:
        self._workers = workers
        self._values = values
        self._items = items
        self._key = keys
        #: What a journal knows an item by: a function of its key and its input.
        self._name = name
        self._observe = observe
        self._owner = owner
        # By index: the key of an item, and the error of one that could not be sent.
        self._keys: dict[int, Any] = {}
        self._unsent: dict[int, str] = {}
        self._pulled = 0
        self._input_error: Optional[BaseException] = None

    def records(self, is_ordered: bool, window: Optional[int]) -> Iterator[Record]:
        """Start to read, and yield the records."""
        self._native = self._workers.open(in_order=is_ordered, window=window)
        # With a window of the user's, no record is taken before the caller asks for it.
        most = MOST_TAKEN if window is None else 1
        self._start_feeder()
        try:
            while taken := self._take(most):
                yield from self._records_of(taken)
            if self._input_error is not None:
                raise self._input_error
        finally:
            if os.getpid() == self._owner:
                self._native.close()

    def _take(self, most: int) -> list[Taken]:
        check_owner(self._owner)
        try:
            return self._native.take(most)
        except PoolError:
            self._workers.has_failed = True
            raise

    def _records_of(self, taken: list[Taken]) -> list[Record]:
        packed = [end for *_, end in taken if type(end) is tuple]
        outputs = iter(self._values.unpack(packed) if packed else ())
        records = []
        left_out = 0
        for each in taken:
            index, *_, end = each
            key = self._keys.pop(index, None)
            if end is None:
                left_out += 1
                continue
            output = next(outputs) if type(end) is tuple else None
            records.append(record_of(each, key, output, self._unsent.pop(index, None), self._workers.gpus))
        self._observe(records, left_out)
        return records

    def _start_feeder(self) -> None:
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(self._feed,), name="gangline-feeder", daemon=True).start()

    # The feeder's thread.

    def _feed(self) -> None:
        try:
            source = iter(self._items)  # type: ignore[arg-type]
            # An input that may block is sent item by item, so that none waits for the next.
            most = MOST_AT_ONCE if isinstance(self._items, (list, tuple, range)) else 1
            while room := self._native.room():
                while room > 0:
                    count = min(room, most)
                    if not self._send(source, count):
                        return
                    room -= count
        except BaseException as error:
            self._input_error = error
        finally:
            self._native.finish()

    def _send(self, source: Iterator[Any], most: int) -> bool:
        """Send this many items, or those that are left. Returns whether there may be more."""
        values: list[Any] = []
        names: list[Optional[str]] = []
        try:
            for _ in range(most):
                value = next(source, _END)
                if value is _END:
                    return False
                index = self._pulled
                key = self._key(index, value)
                if key is not None:
                    self._keys[index] = key
                names.append(None if self._name is None else self._name(key, value))
                values.append(value)
                self._pulled += 1
            return True
        finally:
            self._send_values(values, names[: len(values)])

    def _send_values(self, values: list[Any], names: list[Optional[str]]) -> None:
        first = self._pulled - len(values)
        packed: list[Any] = self._values.pack(values)
        for index, each in enumerate(packed, first):
            if isinstance(each, BaseException):
                self._unsent[index] = full_text(each)
                packed[index - first] = None
        self._native.send(list(zip(names, packed)))


def record_of(taken: Taken, key: Any, output: Any, unsent: Optional[str], places: Places) -> Record:
    """Make the record of an item from its rebuilt output, or from the error of an input that could not be sent."""
    index, worker, attempts, seconds, end = taken
    error: Optional[str] = None
    if unsent is not None:
        worker, attempts, seconds, error = None, 0, 0.0, unsent
    elif type(end) is not tuple:
        error = end
    elif isinstance(output, Unreadable):
        error, output = f"the output cannot be rebuilt: {first_line(output.error)}", None
    gpus = None if worker is None else places[worker]
    if gpus is None:
        worker, gpus = None, ()
    return Record(index, key, output, error, gpus, seconds, attempts, worker)


def check_owner(process: int) -> None:
    """Refuse the use of a pool in a fork of its process, where no thread of the pool runs."""
    if os.getpid() != process:
        raise Forked(f"this pool is of process {process}: make one in this process, a fork of it")
