"""A pool of workers for Python functions."""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence, Sized
from typing import TYPE_CHECKING, Any, Callable, Generic, Literal, Optional, Union, overload

from gangline._broker import Nats, checked_nats, refuse_with_nats
from gangline._call import Call, check_owner
from gangline._calls import CallItem, value_of
from gangline._context import Context
from gangline._errors import PoolError
from gangline._keys import check_keys, input_text, key_text, keys_of, report_names
from gangline._nats import setup_text
from gangline._objects import Shared
from gangline._options import (
    Batch,
    Options,
    Paths,
    Start,
    Time,
    at_least,
    callables,
    checked_start,
    device_list,
    gpu_list,
    one_of,
)
from gangline._owner import WorkersOwner, values_of
from gangline._pickling import Sender
from gangline._progress import Progress
from gangline._records import Record
from gangline._shown import named, place_text, shown_or_plain, state_text
from gangline._types import AnyBatch, Handle, In, Out, PoolOptions, State
from gangline._workers import AnyWorkers, JournaledWorkers, Setup, Workers

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from gangline._async import Place
    from gangline._futures import CallFuture

__all__ = ["Pool"]


class Pool(WorkersOwner, Generic[State, In, Out]):
    """Workers that call ``work`` on inputs, each with its own GPUs and its own state.

    ``load(context)`` is called once in each worker, and returns what ``work`` gets as its first argument; without
    it, that is ``None``. ``work(state, input)`` returns the output. With ``batch=n``, ``work(state, inputs)`` gets a
    list of up to n inputs and returns an output for each in their order: a list, an array or an iterator, and no dict,
    set or data frame. An output that is an exception is that item's error. With ``batch="auto"``, the pool chooses
    the size of the lists, by the times that they take: ``gangline.Batch.auto(most, latency="50ms")`` bounds it.
    ``end(state)`` is called when the worker ends in order.

    With ``finish``, ``finish(state, returned)`` makes the outputs of what ``work`` has returned. For lists, it runs on
    a thread beside ``work``, which has the next list by then: let ``work`` launch what a GPU is to do, and return
    tensors on it, and let ``finish`` copy them to the host. So ``work`` must not write again to memory that it has
    returned, and two lists need memory.

    ====================  =========================================================================================
    ``gpus``              a worker for each GPU of this list: ``"all"``, ``"0-3"``, ``[0, 1]``
    ``workers``           this many workers without GPUs; with ``gpus`` and ``share``, this many on those GPUs
    ``devices``           a worker for each of these places: ``"cuda:all"``, ``"cuda:0*2,cpu"``
    ``backend``           ``"processes"``, or ``"threads"`` of this process, for functions that let go of the GIL, and
                          for Python without one: inputs and outputs are not pickled, all GPUs are visible, and what
                          runs cannot be ended, also not by ``timeout``
    ``order``             ``"input"``, or ``"completion"``: records come when items end
    ``window``            how many items may be read from the input and not yet handed out: by default 4 lists for
                          each worker and at least 16; while inputs and outputs are small, 64 for each worker
    ``retries``           how often a failed item is tried again, after ``retry_delay``
    ``timeout``           how long an attempt may take; its worker is then ended and started again
    ``batch_wait``        how long an incomplete list waits for more inputs
    ``key``               ``key(input)`` names an item in its record; ``keys`` of ``imap`` does too
    ``journal, resume``   a file that records which items are done, by their keys if they have some; ``resume`` leaves
                          those out
    ``min_workers``       an error once ``load`` has failed on so many workers that fewer are left; without it, a
                          ``load`` that fails before any worker is ready is one
    ``progress``          ``True``, or a description: shows progress on standard error
    ``report``            files of reports that are written at the end: ``"run.html"``, ``"run.json"``
    ``start``             ``"spawn"``, a new process for each worker; or ``"forkserver"``, forks of one that has
                          imported the modules of the functions: ``gangline.ForkServer(["torch"])`` names others
    ``visible``           ``"all"``: a worker sees all GPUs, and its ``device`` has the number of its own
    ``nats``              the broker of workers on other machines, each of which has devices of its own:
                          ``"nats://127.0.0.1:4222"`` or a :class:`Nats`; ``gangline worker --serve python`` starts one
    ``verbose``           shows failed attempts on standard error
    ====================  =========================================================================================

    ``share``, ``lock_gpus`` (``True`` or ``"wait"``), ``threads``, ``start_timeout`` and ``end_timeout`` are those of
    ``gangline run``. ``max_restarts`` is how many workers are started in place of those that could not load. All
    workers start with the first item; with ``preload``, as soon as there is a pool. Without ``gpus``, ``devices`` and
    ``workers`` there is a worker for each core and none for a GPU. Times are seconds, or texts such as ``"5ms"``.

    Workers start with the first item and stay for what follows. Any number of threads and tasks may use a pool at once:
    ``imap`` and ``amap`` work on many items, ``pool(x)``, ``submit`` and ``acall`` on one. Calls go before items of
    ``imap`` that no worker has.

    With ``journal``, there are ``imap`` and ``map`` only. Each call of them has workers of its own, and items that are
    done already have no record. The journal knows an item by its key; inputs without keys are plain JSON. An item is
    done once ``work`` has returned and its record is on its way, so let ``work`` save the result: after a kill, records
    that were not handed out do not come again.

    >>> import operator
    >>> with Pool(None, operator.is_, workers=2) as pool:
    ...     [record.value for record in pool.imap([None, 1])]
    [True, False]
    """

    @overload
    def __init__(
        self,
        load: Optional[Callable[[Context], State]],
        work: Callable[[State, In], Out],
        *,
        end: Optional[Callable[[State], object]] = None,
        batch: None = None,
        **options: Unpack[PoolOptions],
    ) -> None: ...

    @overload
    def __init__(
        self,
        load: Optional[Callable[[Context], State]],
        work: Callable[[State, list[In]], Iterable[Out]],
        *,
        end: Optional[Callable[[State], object]] = None,
        batch: AnyBatch,
        **options: Unpack[PoolOptions],
    ) -> None: ...

    @overload
    def __init__(
        self,
        load: Optional[Callable[[Context], State]],
        work: Callable[[State, In], Handle],
        *,
        finish: Callable[[State, Handle], Out],
        end: Optional[Callable[[State], object]] = None,
        batch: None = None,
        **options: Unpack[PoolOptions],
    ) -> None: ...

    @overload
    def __init__(
        self,
        load: Optional[Callable[[Context], State]],
        work: Callable[[State, list[In]], Handle],
        *,
        finish: Callable[[State, Handle], Iterable[Out]],
        end: Optional[Callable[[State], object]] = None,
        batch: AnyBatch,
        **options: Unpack[PoolOptions],
    ) -> None: ...

    def __init__(
        self,
        load: Optional[Callable[[Context], State]],
        work: Callable[[State, Any], Any],
        *,
        gpus: Union[str, int, Iterable[Union[str, int]], None] = None,
        workers: Optional[int] = None,
        devices: Union[str, Iterable[str], None] = None,
        backend: Literal["processes", "threads"] = "processes",
        finish: Optional[Callable[[State, Any], Any]] = None,
        end: Optional[Callable[[State], object]] = None,
        batch: Optional[AnyBatch] = None,
        batch_wait: Optional[Time] = None,
        order: Literal["input", "completion"] = "input",
        window: Optional[int] = None,
        retries: int = 0,
        retry_delay: Optional[Time] = None,
        timeout: Optional[Time] = None,
        start_timeout: Optional[Time] = None,
        end_timeout: Optional[Time] = None,
        max_restarts: Optional[int] = None,
        min_workers: Optional[int] = None,
        start: Start = "spawn",
        preload: bool = False,
        threads: Optional[int] = None,
        share: bool = False,
        lock_gpus: Union[bool, Literal["wait"]] = False,
        visible: Literal["own", "all"] = "own",
        nats: Union[str, Nats, None] = None,
        key: Optional[Callable[[Any], Any]] = None,
        journal: Union[str, os.PathLike[str], None] = None,
        resume: bool = False,
        report: Paths = (),
        progress: Union[bool, str] = False,
        verbose: bool = False,
    ) -> None:
        callables(load=load, work=work, finish=finish, end=end, key=key)
        broker = checked_nats(nats)
        if broker is not None:
            refuse_with_nats(
                {
                    "gpus": gpus,
                    "workers": workers,
                    "devices": devices,
                    "backend": backend,
                    "start": start,
                    "threads": threads,
                    "share": share,
                    "lock_gpus": lock_gpus,
                    "visible": visible,
                    "max_restarts": max_restarts,
                    "end_timeout": end_timeout,
                }
            )
        one_of("order", order, ("input", "completion"))
        one_of("visible", visible, ("own", "all"))
        one_of("backend", backend, ("processes", "threads"))
        one_of("lock_gpus", lock_gpus, (True, False, "wait"))
        at_least(1, batch=batch.most if isinstance(batch, Batch) else None if batch == "auto" else batch)
        at_least(1, window=window, workers=workers, min_workers=min_workers, threads=threads)
        at_least(0, retries=retries, max_restarts=max_restarts)
        if work is None:
            raise TypeError("work must be a function, got None")
        if resume and journal is None:
            raise ValueError("resume=True needs the journal of the earlier run: journal='run.journal'")
        if batch_wait is not None and batch is None:
            raise ValueError("batch_wait is how long a list waits for more inputs, so it needs batch=n or batch='auto'")
        reports = [report] if isinstance(report, (str, os.PathLike)) else report
        self._options = Options(
            gpus=None if gpus is None else gpu_list(gpus),
            devices=None if devices is None else device_list(devices),
            workers=workers,
            batch=batch,
            batch_wait=batch_wait,
            retries=retries,
            retry_delay=retry_delay,
            timeout=timeout,
            start_timeout=start_timeout,
            end_timeout=end_timeout,
            threads=threads,
            max_restarts=max_restarts,
            share=share,
            lock_gpus=lock_gpus,
            journal=None if journal is None else os.fspath(journal),
            resume=resume,
            window=window,
            report=[os.fspath(path) for path in reports],
            min_workers=min_workers,
            fork_server=checked_start(start, backend),
            sees_all=visible == "all",
            verbose=verbose,
            nats=broker,
        )
        least, most = min_workers or 1, self._options.count_workers()
        if least > most:
            raise ValueError(f"min_workers must be at most the number of workers, which is {most}, got {least}")
        # Now, so that a function that cannot be sent is an error here.
        kind = Sender if backend == "processes" else Shared
        self._values: Union[Sender, Shared] = kind((load, work, finish, end))
        self._functions = (load, work, finish, end)
        self._setup: Setup = self._values.setup
        if broker is not None and isinstance(self._values, Sender):
            self._setup = setup_text(self._values, self._functions)
        self._name = named(work)
        self._order = order
        self._key = key
        self._progress = progress
        self._own(self._options)
        # With a journal: those of calls that were dropped.
        self._dropped: list[AnyWorkers] = []
        if preload:
            if journal is not None:
                raise ValueError("preload=True cannot be used with journal=, with which each call has its own workers")
            self._started_for_calls()

    def imap(
        self,
        items: Iterable[In],
        *,
        keys: Optional[Iterable[Any]] = None,
        progress: Union[bool, str, None] = None,
    ) -> Iterator[Record[Out]]:
        """Return an iterator over the records of the items, also of those that failed.

        Items are read as their turn comes, by a thread beside the caller's, at most ``window`` ahead. An exception
        of ``items`` is raised after the records of the items before it. If the iterator is dropped, the rest of the
        items is not read.
        """
        check_keys(items, keys)
        # Without the lock, which a thread of the parent may have held when this process was forked.
        check_owner(self._owner)
        self._check_open()
        return self._imap(items, keys, self._progress if progress is None else progress)

    def _imap(self, items: Iterable[Any], keys: Optional[Iterable[Any]], shown: Union[bool, str]) -> Iterator[Record]:
        progress = progress_of(shown, items)
        observe = observer_of(progress)
        has_keys = keys is not None or self._key is not None
        is_ordered = self._order == "input"
        is_alone = self._options.journal is not None
        self._end_dropped()
        workers = self._started(has_keys, is_ordered)
        if isinstance(workers, Workers):
            workers.refuse_own_thread()
        name = self._name_of(has_keys, workers)
        call = Call(workers, self._values, items, keys_of(keys, self._key), name, observe, self._owner)
        is_dropped = False
        try:
            yield from call.records(is_ordered, self._options.window)
        except GeneratorExit:
            is_dropped = True
            raise
        except (KeyboardInterrupt, SystemExit):
            # Nothing waits for what workers of this call have begun.
            workers.has_failed = workers.has_failed or is_alone
            raise
        finally:
            if progress is not None:
                progress.finish()
            if is_alone:
                self._last = workers
            if is_alone and is_dropped:
                self._dropped.append(workers)
            elif is_alone:
                self._end(workers)

    def _name_of(self, has_keys: bool, workers: AnyWorkers) -> Optional[Callable[[Any, Any], str]]:
        """Return what a journal or the report calls an item."""
        if self._options.journal is not None:
            return key_text if has_keys else input_text
        return report_names() if workers.are_named else None

    def _end_dropped(self) -> None:
        """End the workers of calls that were dropped. Only now is what they have begun waited for."""
        with self._lock:
            ending, self._dropped = self._dropped, []
        for workers in ending:
            self._end(workers)

    def amap(
        self,
        items: Union[Iterable[In], AsyncIterable[In]],
        *,
        keys: Optional[Iterable[Any]] = None,
        progress: Union[bool, str, None] = None,
    ) -> AsyncIterator[Record[Out]]:
        """Return an asynchronous iterator over the records of the items, for asyncio, trio and anyio.

        It is :meth:`imap` for ``async for``. Items that come from an asynchronous iterable are read by a task of the
        loop, and others by a thread, at most ``window`` ahead. If the iterator is closed, or its task is cancelled, the
        rest of the items is not read.
        """
        check_keys(items, keys)
        self._answering()
        return self._amap(items, keys, self._progress if progress is None else progress)

    async def _amap(
        self, items: Union[Iterable[Any], AsyncIterable[Any]], keys: Optional[Iterable[Any]], shown: Union[bool, str]
    ) -> AsyncIterator[Record]:
        from gangline import _async

        here = _async.place()
        has_keys = keys is not None or self._key is not None
        workers = await self._ready_for(here, has_keys)
        workers.refuse_own_thread()
        progress = progress_of(shown, items)
        observe = observer_of(progress)
        name = self._name_of(has_keys, workers)
        keyed = keys_of(keys, self._key)
        call = _async.AsyncCall(here, workers, self._values, items, keyed, name, observe, self._owner)
        call.start(self._order == "input", self._options.window)
        try:
            while records := await call.next_records():
                for record in records:
                    yield record
        finally:
            call.close()
            if progress is not None:
                progress.finish()

    def __call__(self, value: In, /) -> Out:
        """Work on one input, and return its output. Raises :class:`JobFailed` if it fails.

        Calls may come from many threads, also beside ``imap``. All share the workers, and with ``batch``, a list has
        inputs of several calls.

        >>> import operator
        >>> with Pool(None, operator.is_, workers=1) as pool:
        ...     pool(None)
        True
        """
        return self._call(value, None)

    async def acall(self, value: In, /) -> Out:
        """Work on one input, and return its output, in a task of asyncio, trio or anyio.

        If the task is cancelled, the call is given up.
        """
        return await self._acall(value, None)

    def submit(self, value: In, /) -> CallFuture[Out]:
        """Begin to work on one input, and return a ``concurrent.futures.Future`` of its output.

        It has a ``record`` once the item has succeeded or failed. ``cancel()`` gives the call up. If the pool is closed
        before, the future raises :class:`Closed`.

        >>> import operator
        >>> with Pool(None, operator.is_, workers=1) as pool:
        ...     futures = [pool.submit(value) for value in (1, None)]
        ...     [future.result() for future in futures]
        [False, True]
        """
        return self._submit(value)

    def __repr__(self) -> str:
        return shown_or_plain(lambda: self._shown("Pool", self._name), self)

    def _shown(self, kind: str, *first: str) -> str:
        options = ", ".join([*first, place_text(self._options)])
        return f"{kind}({options}): {state_text(self) or 'not started'}"

    # What the service and the executor add to calls.

    def _open_queue(self, calls: Optional[int], *, preload: bool) -> None:
        """Set how many calls may be open, and then start the workers, if they do not wait for the first call."""
        self._options = self._options._replace(queue=calls)
        if preload:
            self._started_for_calls()

    def _submit(
        self, value: Any, deadline: Optional[float] = None, *, is_tried: bool = False, waits_only: bool = False
    ) -> CallFuture[Out]:
        from gangline import _futures

        workers = self._ready()
        begin = workers.try_begin if is_tried else workers.begin
        return _futures.submit(begin, self._item(workers, value), deadline, waits_only=waits_only)

    def _call(self, value: In, deadline: Optional[float]) -> Out:
        item = self._item(self._ready(), value)
        try:
            taken = item.workers.call(item.packed, deadline)
        except PoolError as error:
            item.workers.note(error)
            raise
        record: Record[Out] = item.record(taken)
        return value_of(record)

    async def _acall(self, value: In, deadline: Optional[float]) -> Out:
        from gangline import _async

        here = _async.place()
        workers = await self._ready_for(here)
        item = self._item(workers, value)
        record: Record[Out] = await _async.call(here, workers.begin, item, deadline)
        return value_of(record)

    def _item(self, workers: Workers, value: Any) -> CallItem:
        return CallItem(workers, self._values, self._key, value)

    def _ready(self) -> Workers:
        """Return the workers for a call, and start them if there are none."""
        return self._answering() or self._started_for_calls()

    async def _ready_for(self, here: Place, has_keys: bool = False) -> Workers:
        """Do the same in a task. Workers are started on a thread, since that may wait for the lock of a GPU."""
        workers = self._answering()
        return await here.run(lambda: self._started_for_calls(has_keys)) if workers is None else workers

    def _answering(self) -> Optional[Workers]:
        """Return the workers for a call, if they were started. Fails if the pool takes no calls."""
        # Without the lock, under which workers are started.
        check_owner(self._owner)
        self._check_open()
        if self._options.journal is not None:
            raise PoolError("a pool with a journal has only `imap` and `map`: make another one, without it, for calls")
        for workers in self._workers[:1]:
            if isinstance(workers, Workers) and not workers.has_failed:
                return workers
        return None

    def _started_for_calls(self, has_keys: bool = False) -> Workers:
        workers = self._started(has_keys, is_ordered=True)
        assert isinstance(workers, Workers), "without a journal"
        return workers

    def map(self, items: Iterable[In], *, keys: Optional[Iterable[Any]] = None) -> list[Out]:
        """Return the outputs as a list. Raises :class:`JobFailed` for the first failure in the order of the records.

        >>> import operator
        >>> with Pool(None, operator.is_, workers=1) as pool:
        ...     pool.map([None, 2])
        [True, False]
        """
        return values_of(self.imap(items, keys=keys))

    def _drain(self, timeout: float) -> bool:
        """Take no more calls, and wait for the open ones. Returns whether all were answered in time."""
        check_owner(self._owner)
        with self._lock:
            self._is_closed = True
            draining = [workers for workers in self._workers if isinstance(workers, Workers)]
        return all(workers.drain(timeout) for workers in draining)

    def _started(self, has_keys: bool, is_ordered: bool) -> AnyWorkers:
        """Return the workers for the items of a call, and start them if there are none."""
        with self._lock:
            self._check_open()
            for workers in [workers for workers in self._workers if workers.has_failed]:
                self._workers.remove(workers)
                workers.kill()
            if self._options.journal is not None:
                made = JournaledWorkers(
                    self._options,
                    self._setup,
                    self._functions,
                    self._objects,
                    has_keys=has_keys,
                    in_order=is_ordered,
                )
                self._workers.append(made)
                return made
            if not self._workers:
                self._last = Workers(
                    self._options,
                    self._setup,
                    self._functions,
                    self._objects,
                    are_named=has_keys or self._key is not None,
                )
                self._workers.append(self._last)
            return self._workers[-1]


def progress_of(shown: Union[bool, str], items: object) -> Optional[Progress]:
    """Return the progress of a call, if it is shown."""
    if not shown:
        return None
    return Progress(shown if isinstance(shown, str) else "gangline", len(items) if isinstance(items, Sized) else None)


def observer_of(progress: Optional[Progress]) -> Callable[[Sequence[Record], int], None]:
    """Return what is called with the records of a call, and the number of items that were left out."""
    return (lambda records, left_out: None) if progress is None else progress.add
