"""Stages of a pipeline: their values, their workers, and the functions between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Callable, Optional, Union

from gangline._errors import full_text
from gangline._loop import flush
from gangline._pickling import Receiver, Sender, Unreadable
from gangline._worker import Failure, Finishing, Place, Worker, failure, here, receiver_of

__all__ = ["Expansion", "StageValues", "no_state", "start", "start_here"]

#: Parts that are made at once, if making them cannot block.
MOST_AT_ONCE = 16


class StageValues:
    """Values of a pipeline: pickles, or objects where only threads of this process get them.

    A parent with the outputs for its parts comes as ``(None, parent, [output, ..])``, each packed by itself.
    """

    def __init__(self, pickles: Union[Sender, Receiver, None], *, gives_objects: bool) -> None:
        self._pickles = pickles
        self._gives_objects = gives_objects

    def pack(self, values: Sequence[Any]) -> list[Any]:
        """Pack each value. What cannot be pickled gives its exception.

        >>> StageValues(None, gives_objects=True).pack(["a"])
        [('a',)]
        """
        if self._gives_objects or self._pickles is None:
            return [(value,) for value in values]
        return self._pickles.pack(values)

    def unpack(self, packed: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Rebuild each value. One that fails gives an `Unreadable`.

        >>> StageValues(None, gives_objects=True).unpack([("a",), (None, ("b",), [(1,), (2,)])])
        ['a', ('b', [1, 2])]
        """
        pickles = [pickle for each in packed for pickle in pickles_of(each)]
        read = iter(self._pickles.unpack(pickles) if self._pickles is not None and pickles else ())
        return [rebuilt(each, read) for each in packed]


def pickles_of(packed: tuple[Any, ...]) -> Iterator[tuple[Any, Any]]:
    """Yield the pickles in a packed value, in the order in which `rebuilt` takes their values."""
    if len(packed) == 2:
        yield packed
    elif len(packed) == 3:
        _, parent, outputs = packed
        for each in (parent, *outputs):
            yield from pickles_of(each)


def rebuilt(packed: tuple[Any, ...], read: Iterator[Any]) -> Any:
    """Return a value, of which the pickles were read."""
    if len(packed) == 1:
        return packed[0]
    if len(packed) == 2:
        return next(read)
    _, parent, outputs = packed
    values = [rebuilt(each, read) for each in (parent, *outputs)]
    unreadable = next((value for value in values if isinstance(value, Unreadable)), None)
    return (values[0], values[1:]) if unreadable is None else unreadable


def start(setup: Union[bytes, str], place: Place, stage: int) -> Union[Worker, Failure]:
    """Rebuild the functions of a stage in a process, and call ``load``."""
    try:
        receiver = receiver_of(setup)
        values = StageValues(receiver, gives_objects=False)
        place = here(place) if isinstance(setup, str) else place
        return Worker(values, with_state(receiver.functions[stage]), place, Finishing.LATER)
    except BaseException as error:
        return failure(error)
    finally:
        flush()


def start_here(functions: Any, values: StageValues, place: Place) -> Union[Worker, Failure]:
    """Call ``load`` on a thread of the driver."""
    try:
        return Worker(values, with_state(functions), place)
    except BaseException as error:
        return failure(error)


def with_state(functions: Any) -> Any:
    """Return functions as a pool has them: a stage without ``load`` has ``work`` and ``finish`` without a state."""
    load, work, finish, end = functions
    if load is not None:
        return functions
    finish_with = None if finish is None else lambda _, returned: finish(returned)
    return None, lambda _, value: work(value), finish_with, end


def no_state(_context: Any) -> None:
    """Stand for a ``load`` that is ``None``."""


class Expansion:
    """Makes parts of outputs, in the driver."""

    def __init__(self, function: Callable[[Any], Any], values: StageValues) -> None:
        self._function = function
        self._values = values

    def __call__(self, packed: Any) -> Parts:
        """Begin with a parent."""
        return Parts(self._made(packed), self._values)

    def _made(self, packed: Any) -> Iterator[list[Any]]:
        (parent,) = self._values.unpack([packed])
        if isinstance(parent, Unreadable):
            raise parent.error
        made = self._function(parent)
        # Of others the next part may take any time, and none waits for another.
        most = MOST_AT_ONCE if isinstance(made, (list, tuple, range)) else 1
        parts = iter(made)
        while values := list(islice(parts, most)):
            yield values


class Parts:
    """The parts of one parent, which are made when they are asked for."""

    def __init__(self, made: Iterator[list[Any]], values: StageValues) -> None:
        self._made = made
        self._values = values
        self._failed: Optional[str] = None

    def take(self) -> tuple[list[Any], Optional[str]]:
        """Return packed parts, of which there are none at the end, or else the text of the exception that came next."""
        if self._failed is not None:
            return [], self._failed
        ready: list[Any] = []
        try:
            for packed in self._values.pack(next(self._made, [])):
                if isinstance(packed, BaseException):
                    raise packed
                ready.append(packed)
        except BaseException as error:
            self._failed = full_text(error)
            if not ready:
                return [], self._failed
        return ready, None
