"""A worker of a pool: it rebuilds the functions, and calls them for each message."""

from __future__ import annotations

import enum
import os
from collections.abc import Sequence
from typing import Any, Callable, NamedTuple, Optional, Protocol, Union

from gangline._context import Context
from gangline._errors import full_text, is_lost_gpu, is_out_of_memory
from gangline._loop import flush, outputs_of, release_memory
from gangline._objects import Objects
from gangline._pickling import Packed, Receiver, Unreadable

__all__ = ["Worker", "call_function", "start"]

#: The text of a failure, and the number of its kind.
Failure = tuple[str, int]

#: A worker's number, GPUs and device, and the number of its threads.
Place = tuple[int, Sequence[str], str, int]

#: What an item has become: the pickled output, or its failure.
Outcome = Union[Packed, tuple[Any], Failure]


class Finishing(enum.Enum):
    """When lists are finished, if there is a function for that."""

    #: As part of `Worker.work_on_list`.
    AT_ONCE = enum.auto()
    #: By `Worker.finish`.
    LATER = enum.auto()


#: The kinds of failures, as the binding numbers them.
PLAIN, OUT_OF_MEMORY, LOST_GPU = range(3)


class Values(Protocol):
    """How inputs and outputs are packed."""

    def pack(self, values: Sequence[Any]) -> list[Any]:
        """Pack each value. What cannot be packed gives its exception."""

    def unpack(self, packed: Sequence[Any]) -> list[Any]:
        """Rebuild each value. One that fails gives an `Unreadable`."""


class Unfinished(NamedTuple):
    """What ``work`` has returned for a list."""

    inputs: Sequence[Any]
    #: For the inputs that are not `Unreadable`.
    returned: Any


def start(setup: Union[bytes, str], place: Place) -> Union[Worker, Failure]:
    """Rebuild the functions of a pool in a process, and call ``load``. A text is of a driver that may be elsewhere."""
    try:
        values = receiver_of(setup)
        return Worker(values, values.functions, here(place) if isinstance(setup, str) else place, Finishing.LATER)
    except BaseException as error:
        return failure(error)
    finally:
        flush()


def receiver_of(setup: Union[bytes, str]) -> Receiver:
    """Rebuild the functions of a driver."""
    if isinstance(setup, bytes):
        return Receiver(setup)
    from gangline._nats import NatsReceiver

    return NatsReceiver(setup)


def here(place: Place) -> Place:
    """Return the place with what this machine knows of it: the GPUs that are visible, and the number of threads."""
    number, _, device, threads = place
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "") if device.startswith("cuda") else ""
    return number, visible.split(",") if visible else [], device, int(os.environ.get("OMP_NUM_THREADS", threads))


def start_here(functions: Any, place: Place) -> Union[Worker, Failure]:
    """Call ``load`` on a thread of the driver."""
    try:
        return Worker(Objects(), functions, place)
    except BaseException as error:
        return failure(error)


class Worker:
    """The functions of a pool, and the state that ``load`` has returned."""

    def __init__(self, values: Values, functions: Any, place: Place, finishing: Finishing = Finishing.AT_ONCE) -> None:
        self._values = values
        load, self._work, self._finish, self._end = functions
        self._is_finished_later = finishing is Finishing.LATER and self._finish is not None
        self._process = os.getpid()
        number, gpus, device, threads = place
        self._state = None if load is None else load(Context(number, tuple(gpus), device, threads))

    def prepare(self, packed: Sequence[Any]) -> list[tuple[Any]]:
        """Rebuild inputs for `work_on_list`, also on another thread while ``work`` runs."""
        return [(value,) for value in self._values.unpack(packed)]

    def work(self, packed: Any) -> Outcome:
        """Work on one input."""
        (value,) = self._values.unpack([packed])
        try:
            if isinstance(value, Unreadable):
                raise value.error
            output = self._work(self._state, value)
            if self._finish is not None:
                output = self._finish(self._state, output)
        except BaseException as error:
            self._leave_task()
            return failure(error)
        self._leave_task()
        return self._pack([output])[0]

    def work_on_list(self, packed: Sequence[Any]) -> Union[list[Outcome], tuple[Unfinished], Failure]:
        """Work on a list of inputs. One failure is that of the whole list.

        If the list is finished later, return what `finish` is to be called with.
        """
        values = self._values.unpack(packed)
        readable = [value for value in values if not isinstance(value, Unreadable)]
        try:
            returned = self._work(self._state, readable) if readable else []
        except BaseException as error:
            self._leave_task()
            return failure(error)
        self._leave_task()
        # The inputs are let go with the hook.
        unfinished = Unfinished([value if isinstance(value, Unreadable) else None for value in values], returned)
        return (unfinished,) if self._is_finished_later else self.finish(unfinished)

    def finish(self, unfinished: Unfinished) -> Union[list[Outcome], Failure]:
        """Finish a list: also on another thread, while ``work`` has the next."""
        inputs, returned = unfinished
        name = "work" if self._finish is None else "finish"
        count = sum(not isinstance(value, Unreadable) for value in inputs)
        try:
            if self._finish is not None and count:
                returned = self._finish(self._state, returned)
                self._leave_task()
            outputs = outputs_of(returned, count, name)
        except BaseException as error:
            self._leave_task()
            return failure(error)
        if outputs is None:
            # Not a failure of the list: it would be divided, and be wrong at each size.
            wrong = ValueError(f"with batch, {name} returns a list of outputs, got {type(returned).__name__}")
            outputs = [wrong] * count
        if count == len(inputs):
            return self._pack(outputs)
        rest = iter(self._pack(outputs))
        return [failure(value.error) if isinstance(value, Unreadable) else next(rest) for value in inputs]

    def _pack(self, outputs: list[Any]) -> list[Outcome]:
        return [
            failure(output)
            if isinstance(output, BaseException)
            else failure(packed)
            if isinstance(packed, BaseException)
            else packed
            for output, packed in zip(outputs, self._values.pack(outputs))
        ]

    def _leave_task(self) -> None:
        """Write what was printed, before the answer. A fork of the worker that has come back here ends."""
        flush()
        if os.getpid() != self._process:
            os._exit(0)

    def end(self) -> Optional[Failure]:
        """Call ``end``."""
        try:
            if self._end is not None:
                self._end(self._state)
        except BaseException as error:
            return failure(error)
        finally:
            flush()
        return None


def call_function(_: None, call: tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]) -> Any:
    """Call a function with its arguments: the work of an executor."""
    function, args, kwargs = call
    return function(*args, **kwargs)


def failure(error: BaseException) -> Failure:
    """Describe an exception, which stays in this process."""
    text, kind = full_text(error), PLAIN
    if is_out_of_memory(error):
        release_memory(error)
        kind = OUT_OF_MEMORY
    elif is_lost_gpu(error):
        kind = LOST_GPU
    return text, kind
