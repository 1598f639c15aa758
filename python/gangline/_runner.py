"""A runner: producers on each device, and a consumer on the caller."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Callable, Generic, Literal, Optional, TypeVar, Union, cast

from gangline._context import Context
from gangline._errors import JobFailed
from gangline._pool import Pool
from gangline._records import Record
from gangline._types import AnyBatch, PoolOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["ConsumerContext", "Runner", "consume", "run"]

In = TypeVar("In")
Out = TypeVar("Out")
Summary = TypeVar("Summary")


class ConsumerContext:
    """What the hooks of a consumer know about the item that an output belongs to."""

    #: What became of the item; ``None`` in ``consumer_init`` and ``consumer_end``.
    record: Optional[Record]

    def __init__(self) -> None:
        self.record = None
        self._is_stopped = False

    @property
    def item(self) -> Optional[int]:
        """The item's place in the input, from 0; ``None`` in ``consumer_init`` and ``consumer_end``."""
        return None if self.record is None else self.record.index

    @property
    def key(self) -> Any:
        """The item's key, if there are keys."""
        return None if self.record is None else self.record.key

    def stop(self) -> None:
        """End the run without an error: no further input is read, and ``consumer_end`` is the next hook."""
        self._is_stopped = True


class Runner(Generic[In, Out, Summary]):
    """The hooks of a run: those of a producer are called in each worker, and those of the consumer on the caller.

    Only ``producer_work`` has to be there. What ``producer_init`` and ``consumer_init`` return is the state that the
    hooks after them get. The hooks of producers have a copy of this object, as it was when the run began; those of the
    consumer have this object itself, and may keep what they collect in its attributes.

    >>> class SumOfLengths(Runner[str, int, int]):
    ...     def producer_work(self, context, state, input):
    ...         return len(input)
    ...     def consumer_init(self, context):
    ...         return []
    ...     def consumer_work(self, context, state, output):
    ...         state.append(output)
    ...     def consumer_end(self, context, state):
    ...         return sum(state)
    >>> run(SumOfLengths(), ["a", "bc", "def"], workers=2)
    6
    """

    def producer_init(self, context: Context) -> Any:
        """Return the state of a producer. Called once in each worker, and again in one that takes its place."""
        return None

    def producer_work(self, context: Context, state: Any, input: In) -> Out:
        """Return the output for an input."""
        raise NotImplementedError(f"{type(self).__qualname__}.producer_work is missing")

    def producer_work_batch(
        self, context: Context, state: Any, inputs: list[In]
    ) -> Union[Iterable[Out], Iterable[Union[Out, Exception]]]:
        """Return an output for each input of a list, in their order, in a run with ``batch``.

        An output that is an exception is that item's error. By default, ``producer_work`` is called for each.
        """
        outputs: list[Union[Out, Exception]] = []
        for value in inputs:
            try:
                outputs.append(self.producer_work(context, state, value))
            except Exception as error:
                outputs.append(error)
        return outputs

    def producer_end(self, context: Context, state: Any) -> None:
        """End a producer. Called once in each worker that ends in order."""

    def consumer_init(self, context: ConsumerContext) -> Any:
        """Return the state of the consumer. Called once, before the first output."""
        return None

    def consumer_work(self, context: ConsumerContext, state: Any, output: Out) -> None:
        """Take an output: in the order of the inputs, unless the run has ``order="completion"``."""

    def consumer_skipped(self, context: ConsumerContext, state: Any, error: JobFailed) -> None:
        """Take the failure of an item, in its place, in a run with ``on_error="skip"``."""

    def consumer_end(self, context: ConsumerContext, state: Any) -> Summary:
        """Return what the run returns. Called once, after the last output."""
        return None  # type: ignore[return-value]


def run(
    runner: Runner[In, Out, Summary],
    items: Iterable[In],
    *,
    keys: Optional[Iterable[Any]] = None,
    on_error: Literal["fail", "skip"] = "fail",
    batch: Optional[AnyBatch] = None,
    **options: Unpack[PoolOptions],
) -> Summary:
    """Run all items through a runner, and return what its ``consumer_end`` returns.

    ``batch`` and ``options`` are those of :class:`Pool`: places, retries, limits, a journal. With ``on_error="fail"``
    the first item that fails ends the run with :class:`JobFailed`, without ``consumer_end``; with ``"skip"`` it goes to
    ``consumer_skipped``. An exception of a consumer's hook ends the run too.
    """
    if on_error not in ("fail", "skip"):
        raise ValueError(f"on_error must be 'fail' or 'skip', got {on_error!r}")
    with producers(runner, batch=batch, **options) as pool:
        return consume(runner, pool.imap(items, keys=keys), on_error)


def producers(
    runner: Runner[Any, Any, Any], *, batch: Optional[AnyBatch] = None, **options: Unpack[PoolOptions]
) -> Pool[Any]:
    """Return a pool of the producers of a runner."""
    for name in ("load", "work", "end"):
        if name in options:
            raise TypeError(f"{name} is a hook of the runner: there is no option {name!r}")
    work: Callable[..., Any] = call_single if batch is None else call_list
    make: Callable[..., Pool[Any]] = Pool
    return make(
        functools.partial(start, runner),
        functools.partial(work, runner),
        end=functools.partial(end, runner),
        batch=batch,
        **options,
    )


def consume(
    runner: Runner[Any, Any, Summary], records: Iterator[Record], on_error: Literal["fail", "skip"] = "fail"
) -> Summary:
    """Hand the records to the hooks of the consumer."""
    context = ConsumerContext()
    # However the run ends, no further item is read.
    with contextlib.closing(cast("Generator[Record, None, None]", records)):
        state = runner.consumer_init(context)
        for record in records:
            context.record = record
            if record.ok:
                runner.consumer_work(context, state, record.value)
            elif on_error == "fail":
                raise JobFailed(record)
            else:
                runner.consumer_skipped(context, state, JobFailed(record))
            if context._is_stopped:
                break
    context.record = None
    return runner.consumer_end(context, state)


def start(runner: Runner[Any, Any, Any], context: Context) -> tuple[Context, Any]:
    """Make the state of a worker."""
    return context, runner.producer_init(context)


def call_single(runner: Runner[Any, Any, Any], state: tuple[Context, Any], value: Any) -> Any:
    """Work on an input."""
    return runner.producer_work(*state, value)


def call_list(runner: Runner[Any, Any, Any], state: tuple[Context, Any], values: list[Any]) -> Any:
    """Work on a list of inputs."""
    return runner.producer_work_batch(*state, values)


def end(runner: Runner[Any, Any, Any], state: tuple[Context, Any]) -> None:
    """End a worker."""
    runner.producer_end(*state)
