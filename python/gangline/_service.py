"""A pool that answers calls, with a bounded queue, deadlines and an orderly end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Generic, Optional, overload

from gangline._context import Context
from gangline._native import read_time
from gangline._options import Time, at_least, seconds
from gangline._pool import Pool
from gangline._records import Record
from gangline._report import Report
from gangline._shown import shown_or_plain
from gangline._types import AnyBatch, Handle, In, Out, ServiceOptions, State

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from gangline._futures import CallFuture

__all__ = ["Service"]


class Service(Generic[State, In, Out]):
    """Workers that answer calls, from any thread and from tasks of asyncio, trio and anyio.

    ``load``, ``work`` and all options are those of :class:`Pool`, save for ``order``, ``window``, ``journal``,
    ``resume`` and ``progress``. At most ``queue`` calls are open, which means accepted and not yet answered: by default
    1,024, or four of the largest lists for each worker if that is more. Further calls wait for a place, in the order in
    which they came.

    With ``batch``, a list has inputs of several callers. A free worker takes the inputs that are there, and waits for
    more only for ``batch_wait``. ``batch=gangline.Batch.auto(latency="50ms")`` bounds how long they take.

    >>> import operator
    >>> with Service(None, operator.is_, workers=1, queue=8) as service:
    ...     service(None), service.submit(3).result()
    (True, False)
    """

    @overload
    def __init__(
        self,
        load: Optional[Callable[[Context], State]],
        work: Callable[[State, In], Out],
        *,
        queue: Optional[int] = None,
        end: Optional[Callable[[State], object]] = None,
        batch: None = None,
        **options: Unpack[ServiceOptions],
    ) -> None: ...

    @overload
    def __init__(
        self,
        load: Optional[Callable[[Context], State]],
        work: Callable[[State, list[In]], Iterable[Out]],
        *,
        queue: Optional[int] = None,
        end: Optional[Callable[[State], object]] = None,
        batch: AnyBatch,
        **options: Unpack[ServiceOptions],
    ) -> None: ...

    @overload
    def __init__(
        self,
        load: Optional[Callable[[Context], State]],
        work: Callable[[State, In], Handle],
        *,
        queue: Optional[int] = None,
        finish: Callable[[State, Handle], Out],
        end: Optional[Callable[[State], object]] = None,
        batch: None = None,
        **options: Unpack[ServiceOptions],
    ) -> None: ...

    @overload
    def __init__(
        self,
        load: Optional[Callable[[Context], State]],
        work: Callable[[State, list[In]], Handle],
        *,
        queue: Optional[int] = None,
        finish: Callable[[State, Handle], Iterable[Out]],
        end: Optional[Callable[[State], object]] = None,
        batch: AnyBatch,
        **options: Unpack[ServiceOptions],
    ) -> None: ...

    def __init__(
        self,
        load: Optional[Callable[[Context], State]],
        work: Callable[[State, Any], Any],
        *,
        queue: Optional[int] = None,
        batch: Optional[AnyBatch] = None,
        **options: Any,
    ) -> None:
        for name in ("order", "window", "journal", "resume", "progress"):
            if name in options:
                raise TypeError(f"a service has no {name}: that is an option of a pool")
        at_least(1, queue=queue)
        if queue is not None and isinstance(batch, int) and queue < batch:
            raise ValueError(f"queue must have room for a list, which has up to {batch} inputs, got {queue}")
        preload = options.pop("preload", False)
        self._pool: Pool[State, In, Out] = Pool(load, work, batch=batch, **options)
        self._pool._open_queue(queue, preload=preload)
        self._deadline: Optional[float] = None

    def __call__(self, value: In, /) -> Out:
        """Work on one input, and return its output. Raises :class:`JobFailed` if it fails.

        If the queue is full, it waits for a place first.
        """
        return self._pool._call(value, self._deadline)

    async def acall(self, value: In, /) -> Out:
        """Work on one input, and return its output, in a task of asyncio, trio or anyio.

        If the task is cancelled, the call is given up.
        """
        return await self._pool._acall(value, self._deadline)

    def submit(self, value: In, /) -> CallFuture[Out]:
        """Begin to work on one input, and return a ``concurrent.futures.Future`` of its output.

        It does not wait. The call itself waits for a place if the queue is full.
        """
        return self._pool._submit(value, self._deadline)

    def try_submit(self, value: In, /) -> CallFuture[Out]:
        """Do the same if the queue has a place. Raises :class:`Full` if it has none."""
        return self._pool._submit(value, self._deadline, is_tried=True)

    def with_deadline(self, limit: Time) -> Service[State, In, Out]:
        """Return a handle of this service whose calls are answered within this time.

        If need be, they raise :class:`DeadlineExceeded`, and the input is given up. The time counts from the call, and
        includes the wait for a place. ``stream`` has no deadlines.

        >>> import operator
        >>> with Service(None, operator.is_, workers=1) as service:
        ...     quick = service.with_deadline("1m")
        ...     quick(None)
        True
        """
        handle: Service[State, In, Out] = Service.__new__(Service)
        handle._pool = self._pool
        handle._deadline = read_time("limit", seconds(limit))
        return handle

    def stream(self, items: Iterable[In], *, keys: Optional[Iterable[Any]] = None) -> Iterator[Record[Out]]:
        """Return an iterator over the records of many items, in their order, as ``Pool.imap`` does.

        Calls go before items of streams that no worker has. If calls take all of the time, streams still have every
        tenth item.
        """
        return self._pool.imap(items, keys=keys)

    def drain(self, timeout: Time) -> bool:
        """Refuse new calls, and wait until those that were accepted are answered. Returns whether all were.

        After the time, the others raise :class:`Closed`. The workers stay until ``close``.
        """
        return self._pool._drain(read_time("timeout", seconds(timeout)))

    def report(self) -> Report:
        """Return what has happened until now: how calls ended, the time of each worker, and failures."""
        return self._pool.report()

    def close(self) -> None:
        """End the workers in order, once those in work have ended. Calls that are open raise :class:`Closed`."""
        self._pool.close()

    def terminate(self) -> None:
        """End the workers now, in the middle of their work. Calls that are open raise :class:`Closed`."""
        self._pool.terminate()

    def __repr__(self) -> str:
        return shown_or_plain(lambda: self._pool._shown("Service", self._pool._name), self)

    def __enter__(self) -> Service[State, In, Out]:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self._pool.__exit__(kind, error, traceback)
