"""A pool of workers for Python functions."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence, Sized
from types import TracebackType
from typing import Any, Callable, Generic, Literal, Optional, TypeVar, Union

from gangline._call import Call, CompletionCall, JournaledCall, Window
from gangline._context import Context
from gangline._errors import JobFailed, PoolError
from gangline._program import Options, Paths, Time, device_list, gpu_list
from gangline._progress import Progress
from gangline._records import Record
from gangline._run import Run, check_owner
from gangline._summary import Summary
from gangline._transport import Packed

__all__ = ["Pool"]

State = TypeVar("State")


class Pool(Generic[State]):
    """Workers that call ``work`` on inputs, each with its own GPUs and its own state.

    ``load(context)`` is called once in each worker, and returns what ``work`` gets as its first argument; without
    it, that is ``None``. ``work(state, input)`` returns the output. With ``batch=n``, ``work(state, inputs)`` gets a
    list of up to n inputs and returns an output for each in their order: a list, an array or an iterator, and no dict,
    set or data frame. An output that is an exception is that item's error. With ``batch="auto"``, the program chooses
    the size of the lists, by the times that they take.
    ``end(state)`` is called when the worker ends in order.

    ====================  =========================================================================================
    ``gpus``              a worker for each GPU of this list: ``"all"``, ``"0-3"``, ``[0, 1]``
    ``workers``           this many workers without GPUs; with ``gpus`` and ``share``, this many on those GPUs
    ``devices``           a worker for each of these places: ``"cuda:all"``, ``"cuda:0*2,cpu"``
    ``order``             ``"input"``, or ``"completion"``: records come when items end
    ``window``            how many items may be read from the input and not yet handed out: by default 4 for each
                          worker (lists of ``batch``) and at least 16; while inputs and outputs are below 64 KiB, 64
                          for each worker, and up to 1,024 if they take less than a millisecond
    ``retries``           how often a failed item is tried again, after ``retry_delay``
    ``timeout``           how long an attempt may take; its worker is then ended and started again
    ``batch_wait``        how long an incomplete list waits for more inputs
    ``key``               ``key(input)`` names an item in its record; ``keys`` of ``imap`` does too
    ``journal, resume``   a file that records which items are done, by their keys if they have some; ``resume`` leaves
                          those out
    ``min_workers``       an error once ``load`` has failed on so many workers that fewer are left; without it, a
                          ``load`` that fails before any worker is ready is one
    ``progress``          ``True``, or a description: shows progress on standard error
    ``report``            files of reports that the program writes at the end: ``"run.html"``, ``"run.json"``
    ``visible``           ``"all"``: a worker sees all GPUs, and its ``device`` has the number of its own
    ``verbose``           shows the program's own messages on standard error
    ====================  =========================================================================================

    ``share``, ``lock_gpus`` (``True`` or ``"wait"``), ``threads``, ``preload``, ``max_restarts``, ``start_timeout``
    and ``end_timeout`` are those of ``gangline run``. Without ``gpus``, ``devices`` and ``workers`` there is a worker
    for each core and none for a GPU. Times are seconds, or texts such as ``"5ms"``.

    Workers start with the first item and stay for the calls that follow. With ``journal``, each call of ``imap`` has
    workers of its own, and items that are done already have no record. The journal knows an item by its key; inputs
    without keys are plain JSON. An item is done once ``work`` has returned and its record is on its way, so let
    ``work`` save the result: after a kill, records that were not handed out do not come again.

    >>> import operator
    >>> with Pool(None, operator.is_, workers=2) as pool:
    ...     [record.value for record in pool.imap([None, 1])]
    [True, False]
    """

    def __init__(
        self,
        load: Optional[Callable[[Context], State]],
        work: Callable[[State, Any], Any],
        *,
        gpus: Union[str, int, Iterable[Union[str, int]], None] = None,
        workers: Optional[int] = None,
        devices: Union[str, Iterable[str], None] = None,
        end: Optional[Callable[[State], object]] = None,
        batch: Union[int, Literal["auto"], None] = None,
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
        preload: bool = False,
        threads: Optional[int] = None,
        share: bool = False,
        lock_gpus: Union[bool, Literal["wait"]] = False,
        visible: Literal["own", "all"] = "own",
        key: Optional[Callable[[Any], Any]] = None,
        journal: Union[str, os.PathLike[str], None] = None,
        resume: bool = False,
        report: Paths = (),
        progress: Union[bool, str] = False,
        verbose: bool = False,
    ) -> None:
        callables(load=load, work=work, end=end, key=key)
        one_of("order", order, ("input", "completion"))
        one_of("visible", visible, ("own", "all"))
        one_of("lock_gpus", lock_gpus, (True, False, "wait"))
        at_least(1, batch=None if batch == "auto" else batch)
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
            preload=preload,
            journal=None if journal is None else os.fspath(journal),
            resume=resume,
            keeps_order=journal is not None and order == "input",
            window=window,
            report=[os.fspath(path) for path in reports],
            min_workers=min_workers,
            sees_all=visible == "all",
            verbose=verbose,
        )
        least, most = min_workers or 1, self._options.count_workers()
        if least > most:
            raise ValueError(f"min_workers must be at most the number of workers, which is {most}, got {least}")
        # Now, so that a function that cannot be sent is an error here.
        self._functions = b"".join(Packed((load, work, end)).parts())
        self._order = order
        self._key = key
        self._progress = progress
        self._summary = Summary()
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._is_closed = False
        # Shared with the finalizer, which must not hold the pool.
        self._runs: list[Run] = []
        self._finalizer = weakref.finalize(self, end_abandoned, self._runs)

    def imap(
        self,
        items: Iterable[Any],
        *,
        keys: Optional[Iterable[Any]] = None,
        progress: Union[bool, str, None] = None,
    ) -> Iterator[Record]:
        """Return an iterator over the records of the items, also of those that failed.

        Items are read as their turn comes, by a thread beside the caller's, at most ``window`` ahead. An exception
        of ``items`` is raised after the records of the items before it. If the iterator is dropped, the rest of the
        items is not read.
        """
        if keys is not None and isinstance(items, Sized) and isinstance(keys, Sized) and len(items) != len(keys):
            raise ValueError(f"{len(keys)} keys for {len(items)} items")
        # Without the lock, which a thread of the parent may have held when this process was forked.
        check_owner(self._owner)
        if self._is_closed:
            raise PoolError("the pool is closed")
        return self._imap(items, keys, self._progress if progress is None else progress)

    def _imap(self, items: Iterable[Any], keys: Optional[Iterable[Any]], shown: Union[bool, str]) -> Iterator[Record]:
        # The program holds these until a record has come: they must not hold the pool.
        summary, progress = self._summary, progress_of(shown, items)

        def observe(records: Sequence[Record], left_out: int) -> None:
            summary.add(records, left_out)
            if progress is not None:
                progress.add(records, left_out)

        kind = JournaledCall if self._options.journal else Call if self._order == "input" else CompletionCall
        self._summary.start()
        window = Window(self._options.window, self._options.count_workers(), self._options.largest_list())
        has_keys = self._options.journal is not None and not (keys is None and self._key is None)
        call = kind(self._started(has_keys), items, keys_of(keys, self._key), window, observe)
        try:
            yield from call.records()
        finally:
            if progress is not None:
                progress.finish()

    def map(self, items: Iterable[Any], *, keys: Optional[Iterable[Any]] = None) -> list[Any]:
        """Return the outputs as a list. Raises :class:`JobFailed` for the first failure in the order of the records.

        >>> import operator
        >>> with Pool(None, operator.is_, workers=1) as pool:
        ...     pool.map([None, 2])
        [True, False]
        """
        values = []
        records = self.imap(items, keys=keys)
        for record in records:
            if not record.ok:
                # No further item is read.
                del records
                raise JobFailed(record)
            values.append(record.value)
        return values

    def report(self) -> str:
        """Return what has happened until now: counts, time by worker, failures."""
        return str(self._summary)

    def close(self) -> None:
        """End the workers in order. Items that were not handed out are given up, once those in work have ended."""
        with self._lock:
            self._is_closed = True
            runs, self._runs[:] = list(self._runs), []
        errors = []
        for index, run in enumerate(runs):
            try:
                errors.append(run.close())
            except BaseException:
                for left in runs[index:]:
                    left.kill()
                raise
        for error in errors:
            if error is not None:
                raise error

    def terminate(self) -> None:
        """End the workers now, in the middle of their work."""
        with self._lock:
            self._is_closed = True
            runs, self._runs[:] = list(self._runs), []
        for run in runs:
            run.kill()

    def __enter__(self) -> Pool[State]:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.terminate()

    def _started(self, has_keys: bool) -> Run:
        """Return the program that takes the items of a call, and start one if there is none."""
        with self._lock:
            if self._is_closed:
                raise PoolError("the pool is closed")
            ended = [run for run in self._runs if run.has_ended]
            for run in ended:
                run.kill()
                self._runs.remove(run)
            if self._options.journal or not self._runs:
                self._runs.append(Run(self._options._replace(has_keys=has_keys), self._functions))
            return self._runs[-1]


def keys_of(keys: Optional[Iterable[Any]], key: Optional[Callable[[Any], Any]]) -> Callable[[int, Any], Any]:
    """Return a function for the key of an item, given its index and the item."""
    if keys is None:
        return lambda _, item: None if key is None else key(item)
    names = iter(keys)

    def next_key(index: int, _: Any) -> Any:
        try:
            return next(names)
        except StopIteration:
            raise ValueError(f"item {index} has no key: there are {index} keys") from None

    return next_key


def progress_of(shown: Union[bool, str], items: Iterable[Any]) -> Optional[Progress]:
    """Return the progress of a call, if it is shown."""
    if not shown:
        return None
    return Progress(shown if isinstance(shown, str) else "gangline", len(items) if isinstance(items, Sized) else None)


def end_abandoned(runs: list[Run]) -> None:
    """End the runs of a pool that was dropped, or not closed before the interpreter ends."""
    for run in runs:
        try:
            # After an exception nothing is waited for.
            if getattr(sys, "last_type", None) is None:
                run.close()
            else:
                run.kill()
        except BaseException:
            run.kill()
            raise


def callables(**functions: object) -> None:
    """Refuse what cannot be called."""
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise TypeError(f"{name} must be a function, got {function!r}")


def one_of(name: str, given: object, allowed: tuple[object, ...]) -> None:
    """Refuse other values of an option."""
    if given not in allowed:
        raise ValueError(f"{name} must be {' or '.join(map(repr, allowed))}, got {given!r}")


def at_least(least: int, **numbers: Optional[int]) -> None:
    """Refuse smaller numbers, and what is no whole number."""
    for name, number in numbers.items():
        if number is None:
            continue
        if isinstance(number, bool) or not hasattr(number, "__index__"):
            raise TypeError(f"{name} must be a whole number, got {number!r}")
        if number < least:
            raise ValueError(f"{name} must be at least {least}, got {number!r}")
