"""Calls: inputs that are worked on by themselves, and the places where their answers are waited for."""

from __future__ import annotations

import itertools
import os
from collections import deque
from typing import Any, Callable, Optional, Union

from gangline._call import Taken, record_of
from gangline._errors import JobFailed, full_text
from gangline._keys import shown_text
from gangline._native import NativeCalls
from gangline._objects import Shared
from gangline._pickling import Sender
from gangline._records import Record
from gangline._types import Out
from gangline._workers import Workers

__all__ = ["CallItem", "Waiting", "value_of"]

#: What is begun: ``Workers.begin`` or ``Workers.try_begin``.
Begin = Callable[[NativeCalls, int, Any, Optional[float]], None]


class CallItem:
    """The input of a call, which is packed at once, and the record that its answer makes."""

    __slots__ = ("_key", "_unsent", "_values", "packed", "workers")

    def __init__(
        self,
        workers: Workers,
        values: Union[Sender, Shared],
        key: Optional[Callable[[Any], Any]],
        value: Any,
    ) -> None:
        self.workers = workers
        self._values = values
        self._key = None if key is None else key(value)
        self._unsent: Optional[str] = None
        packed: Any
        (packed,) = values.pack([value])
        if isinstance(packed, BaseException):
            self._unsent, packed = full_text(packed), None
        #: As the native part takes it: the name in a journal, and the input if it could be packed.
        self.packed = (self._name() if workers.are_named else None, packed)

    def _name(self) -> str:
        return "call" if self._key is None else shown_text(self._key)

    def record(self, taken: Union[Taken, BaseException]) -> Record:
        """Rebuild the output. Raises the error that has ended the call, if it belongs to no item."""
        if isinstance(taken, BaseException):
            self.workers.note(taken)
            raise taken
        end = taken[4]
        (output,) = self._values.unpack([end]) if type(end) is tuple else (None,)
        return record_of(taken, self._key, output, self._unsent, self.workers.gpus)


def value_of(record: Record[Out]) -> Out:
    """Return the output of an item. Raises :class:`JobFailed` if it has none."""
    if not record.ok:
        raise JobFailed(record)
    return record.value


class Waiting:
    """A place where a thread, or an event loop, waits for many calls and streams at once, each under a number."""

    def __init__(self) -> None:
        self.native: NativeCalls = NativeCalls()
        #: The process that may use it.
        self.owner: int = os.getpid()
        self._numbers = itertools.count()
        # What is called with the answer of a call, or with `None` when a stream was woken. To take an entry out is to
        # settle its call: answers, and calls that are given up, may meet on different threads.
        self._open: dict[int, Callable[[Any], object]] = {}
        #: Taken, and not yet passed on.
        self._answers: deque[tuple[int, Any]] = deque()

    def begin(self, begin: Begin, packed: Any, deadline: Optional[float], settle: Callable[[Any], object]) -> int:
        """Begin a call, and return its number. ``settle`` is called with its answer where this place waits."""
        number = next(self._numbers)
        # Before the call begins, since the answer may come at once.
        self._open[number] = settle
        try:
            begin(self.native, number, packed, deadline)
        except BaseException:
            self.forget(number)
            raise
        return number

    def watch(self, wake: Callable[[Any], object]) -> int:
        """Return a number for a stream. ``wake`` is called each time the stream was woken."""
        number = next(self._numbers)
        self._open[number] = wake
        return number

    def forget(self, number: int) -> bool:
        """Drop what is called under this number. Returns whether it was open."""
        return self._open.pop(number, None) is not None

    def give_up(self, number: int) -> bool:
        """Give a call up. Returns whether it was open."""
        if os.getpid() != self.owner or not self.forget(number):
            return False
        self.native.give_up(number)
        return True

    def give_up_waiting(self, number: int) -> bool:
        """Give a call up if it waits for its place in the queue. Returns whether that is so."""
        if os.getpid() != self.owner or number not in self._open:
            return False
        return self.native.give_up_waiting(number) and self.forget(number)

    def settle_ready(self) -> None:
        """Pass on the answers that are there."""
        self._answers.extend(self.native.take_ready())
        self._settle()

    def _settle(self) -> None:
        # What is called may wait for another answer here, and so come back.
        while self._answers:
            number, answer = self._answers.popleft()
            settle = self._open.get(number) if answer is None else self._open.pop(number, None)
            if settle is not None:
                settle(answer)
