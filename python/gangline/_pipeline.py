"""Pipelines: stages of Python functions in a row, each with its own workers."""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Callable, Generic, Literal, Optional, TypeVar, Union, overload

from gangline._call import Call, check_owner
from gangline._context import Context
from gangline._keys import check_keys, input_text, key_text, keys_of, report_names
from gangline._options import Options, Paths, at_least, callables, one_of
from gangline._owner import WorkersOwner, values_of
from gangline._pool import observer_of, progress_of
from gangline._records import Record
from gangline._run_summary import MOST_FAILURES, Counted, RunSummary
from gangline._shown import shown_or_plain, state_text
from gangline._stage_options import StageOptions
from gangline._steps import Expand, Gather, Line, Settings, Step, Steps, line_of
from gangline._workers import AnyWorkers, StageWorkers

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from gangline._async import Place

__all__ = ["Parts", "Pipeline", "RunSummary"]

In = TypeVar("In")
Out = TypeVar("Out")
Next = TypeVar("Next")
Part = TypeVar("Part")
Parent = TypeVar("Parent")
State = TypeVar("State")


class Unfed:
    """Stands for the inputs and outputs of a pipeline without stages."""


class Pipeline(Steps, WorkersOwner, Generic[In, Out]):
    """Stages in a row, each with its own workers: the outputs of one are the inputs of the next.

    A pipeline is put together step by step. Each method that adds a step returns a new pipeline, and leaves this one as
    it is.

    >>> import operator
    >>> squares = Pipeline().stage(operator.neg, workers=1).stage(abs, workers=1)
    >>> with squares:
    ...     [record.value for record in squares.imap([1, -2])]
    [1, 2]

    ====================  =========================================================================================
    ``order``             ``"input"``, or ``"completion"``: items go on and records come when they end
    ``window``            how many items each stage may hold that has no ``window`` of its own: by default 4 lists
                          for each worker and at least 16, and more while they are small
    ``key``               ``key(input)`` names an item in its record; ``keys`` of ``imap`` does too
    ``journal, resume``   a file that records which inputs are done with all stages; ``resume`` leaves those out
    ``progress``          ``True``, or a description: shows progress on standard error
    ``report``            files of reports that are written at the end: ``"run.html"``, ``"run.json"``
    ``verbose``           shows failed attempts on standard error
    ====================  =========================================================================================

    Values go from the workers of one stage to those of the next as they are: this process does not unpickle them. With
    ``backend="threads"``, a stage unpickles what it gets from processes and pickles what it gives to them, on its own
    threads; between stages of threads, objects are handed over.

    The error of a record names the stage, and the part of an expansion: ``in infer, part 3: ValueError: ..``. Its
    worker is numbered through all stages; ``seconds`` and ``attempts`` are those of the last stage that had the item.
    With ``journal``, an item is done once its record is on its way, and so behind the last stage.

    Workers start with the first item and stay for the calls that follow. Calls at the same time have workers of their
    own, and so has each call with a journal.
    """

    def __init__(
        self: Pipeline[Unfed, Unfed],
        *,
        order: Literal["input", "completion"] = "input",
        window: Optional[int] = None,
        key: Optional[Callable[[Any], Any]] = None,
        journal: Union[str, os.PathLike[str], None] = None,
        resume: bool = False,
        report: Paths = (),
        progress: Union[bool, str] = False,
        verbose: bool = False,
    ) -> None:
        callables(key=key)
        one_of("order", order, ("input", "completion"))
        at_least(1, window=window)
        if resume and journal is None:
            raise ValueError("resume=True needs the journal of the earlier run: journal='run.journal'")
        reports = [report] if isinstance(report, (str, os.PathLike)) else report
        options = Options(
            journal=None if journal is None else os.fspath(journal),
            resume=resume,
            window=window,
            report=[os.fspath(path) for path in reports],
            verbose=verbose,
        )
        self._set_up((), Settings(options, order, key, progress))

    _kind = "pipeline"

    def _set_up(self, steps: tuple[Step, ...], settings: Settings) -> None:
        super().__init__(steps, settings)
        self._own(settings.options)
        self._line: Optional[Line] = None
        # Those that no call has.
        self._idle: list[StageWorkers] = []

    @overload
    def stage(
        self: Pipeline[Unfed, Unfed], work: Callable[[Part], Next], /, **options: Unpack[StageOptions]
    ) -> Pipeline[Part, Next]: ...
    @overload
    def stage(
        self: Pipeline[Unfed, Unfed],
        work: Callable[[list[Part]], Iterable[Next]],
        /,
        *,
        batch: Union[int, Literal["auto"]],
        **options: Unpack[StageOptions],
    ) -> Pipeline[Part, Next]: ...
    @overload
    def stage(
        self: Pipeline[Unfed, Unfed],
        load: Optional[Callable[[Context], State]],
        work: Callable[[State, Part], Next],
        /,
        **options: Unpack[StageOptions],
    ) -> Pipeline[Part, Next]: ...
    @overload
    def stage(
        self: Pipeline[Unfed, Unfed],
        load: Optional[Callable[[Context], State]],
        work: Callable[[State, list[Part]], Iterable[Next]],
        /,
        *,
        batch: Union[int, Literal["auto"]],
        **options: Unpack[StageOptions],
    ) -> Pipeline[Part, Next]: ...
    @overload
    def stage(self, work: Callable[[Out], Next], /, **options: Unpack[StageOptions]) -> Pipeline[In, Next]: ...
    @overload
    def stage(
        self,
        work: Callable[[list[Out]], Iterable[Next]],
        /,
        *,
        batch: Union[int, Literal["auto"]],
        **options: Unpack[StageOptions],
    ) -> Pipeline[In, Next]: ...
    @overload
    def stage(
        self,
        load: Optional[Callable[[Context], State]],
        work: Callable[[State, Out], Next],
        /,
        **options: Unpack[StageOptions],
    ) -> Pipeline[In, Next]: ...
    @overload
    def stage(
        self,
        load: Optional[Callable[[Context], State]],
        work: Callable[[State, list[Out]], Iterable[Next]],
        /,
        *,
        batch: Union[int, Literal["auto"]],
        **options: Unpack[StageOptions],
    ) -> Pipeline[In, Next]: ...
    def stage(self, *functions: Any, **options: Any) -> Pipeline[Any, Any]:
        """Add a stage, whose workers call ``work(input)``.

        With two functions, ``load(context)`` is called once in each worker, and ``work(state, input)`` gets what it has
        returned. With ``batch``, ``work`` gets lists and returns an output for each input.

        The options are those of :class:`Pool`: ``gpus``, ``workers``, ``devices``, ``share``, ``visible``,
        ``lock_gpus``, ``threads``, ``backend``, ``batch``, ``batch_wait``, ``retries``, ``retry_delay``, ``timeout``,
        ``start_timeout``, ``end_timeout``, ``max_restarts``, ``min_workers`` and ``end``. ``window`` is how many items
        the stage may hold. ``name`` is what errors and reports call it, by default the name of ``work``.
        """
        return pipeline_of(self._with_stage(functions, options), self._settings)

    @overload
    def expand(
        self: Pipeline[Unfed, Unfed],
        function: Callable[[Parent], Iterable[Part]],
        /,
        *,
        open_parents: Optional[int] = None,
    ) -> Parts[Parent, Parent, Part]: ...
    @overload
    def expand(
        self, function: Callable[[Out], Iterable[Part]], /, *, open_parents: Optional[int] = None
    ) -> Parts[In, Out, Part]: ...
    def expand(self, function: Any, /, *, open_parents: Optional[int] = None) -> Parts[Any, Any, Any]:
        """Make each output into any number of parts, the inputs of the next stage.

        ``function(output)`` returns an iterable of parts. It is called in this process, on a thread of the pipeline,
        and is read no further than the next stage has room: let it give coordinates, and not pixels. An exception that
        it raises is the error of the item. ``open_parents`` is how many items may be expanded and not yet gathered, by
        default two for each worker of the stage before, or else of the one behind.

        >>> import operator
        >>> sums = (
        ...     Pipeline()
        ...     .stage(operator.index, workers=1)
        ...     .expand(range)
        ...     .stage(operator.neg, workers=1)
        ...     .gather()
        ... )
        >>> with sums:
        ...     sums.map([3, 0])
        [(3, [0, -1, -2]), (0, [])]
        """
        return parts_of(self._with_expansion(function, open_parents), self._settings)

    def imap(
        self,
        items: Iterable[In],
        *,
        keys: Optional[Iterable[Any]] = None,
        progress: Union[bool, str, None] = None,
    ) -> Iterator[Record[Out]]:
        """Return an iterator over the records of the items, also of those that failed.

        Items are read as their turn comes, by a thread beside the caller's. An exception of ``items`` is raised after
        the records of the items before it. If the iterator is dropped, the rest of the items is not read, and the next
        call begins when what the workers have begun has ended.
        """
        self._check_call(items, keys)
        return self._imap(items, keys, self._settings.progress if progress is None else progress)

    def _imap(self, items: Iterable[Any], keys: Optional[Iterable[Any]], shown: Union[bool, str]) -> Iterator[Record]:
        _, order, key, _ = self._settings
        has_keys = keys is not None or key is not None
        progress = progress_of(shown, items)
        workers, line = self._started(has_keys)
        name = self._name_of(has_keys)
        call = Call(workers, line.values, items, keys_of(keys, key), name, observer_of(progress), self._owner)
        is_dropped = False
        try:
            yield from call.records(order == "input", self._settings.options.window)
        except GeneratorExit:
            is_dropped = True
            raise
        except (KeyboardInterrupt, SystemExit):
            # Nothing waits for what the workers have begun.
            workers.has_failed = True
            raise
        finally:
            if progress is not None:
                progress.finish()
            if os.getpid() == self._owner:
                self._release(workers, is_dropped=is_dropped)

    def amap(
        self,
        items: Union[Iterable[In], AsyncIterable[In]],
        *,
        keys: Optional[Iterable[Any]] = None,
        progress: Union[bool, str, None] = None,
    ) -> AsyncIterator[Record[Out]]:
        """Return an asynchronous iterator over the records of the items, for asyncio, trio and anyio.

        It is :meth:`imap` for ``async for``. Items that come from an asynchronous iterable are read by a task of the
        loop, and others by a thread. If the iterator is closed, or its task is cancelled, the call is given up.
        """
        self._check_call(items, keys)
        return self._amap(items, keys, self._settings.progress if progress is None else progress)

    async def _amap(
        self, items: Union[Iterable[Any], AsyncIterable[Any]], keys: Optional[Iterable[Any]], shown: Union[bool, str]
    ) -> AsyncIterator[Record]:
        from gangline import _async

        _, order, key, _ = self._settings
        has_keys = keys is not None or key is not None
        here = _async.place()
        progress = progress_of(shown, items)
        workers, line = await self._started_in(here, has_keys)
        name, observe = self._name_of(has_keys), observer_of(progress)
        call = _async.AsyncCall(here, workers, line.values, items, keys_of(keys, key), name, observe, self._owner)
        has_begun, is_dropped = False, True
        try:
            call.start(order == "input", self._settings.options.window)
            has_begun = True
            while records := await call.next_records():
                for record in records:
                    yield record
            is_dropped = False
        except Exception:
            # A task that is cancelled must not wait any more.
            is_dropped = False
            raise
        finally:
            if has_begun:
                call.close()
            if progress is not None:
                progress.finish()
            if os.getpid() == self._owner:
                if is_dropped:
                    self._release(workers, is_dropped=True)
                else:
                    await here.run(lambda: self._release(workers, is_dropped=False))

    async def _started_in(self, here: Place, has_keys: bool) -> tuple[StageWorkers, Line]:
        """Do what `_started` does on a thread, since it waits. If the task is cancelled, nothing uses the workers."""
        is_wanted = True
        started: list[StageWorkers] = []

        def give_back() -> None:
            with self._lock:
                if not is_wanted:
                    while started:
                        self._release(started.pop(), is_dropped=True)

        def start() -> tuple[StageWorkers, Line]:
            workers, line = self._started(has_keys)
            started.append(workers)
            give_back()
            return workers, line

        try:
            return await here.run(start)
        except BaseException:
            is_wanted = False
            give_back()
            raise

    def _check_call(self, items: object, keys: Optional[Iterable[Any]]) -> None:
        check_keys(items, keys)
        check_owner(self._owner)
        with self._lock:
            self._check_open()
            if self._line is None:
                self._line = line_of(self._steps, self._settings.options)

    def _name_of(self, has_keys: bool) -> Callable[[Any, Any], str]:
        if self._settings.options.journal is not None:
            return key_text if has_keys else input_text
        return report_names()

    def map(self, items: Iterable[In], *, keys: Optional[Iterable[Any]] = None) -> list[Out]:
        """Return the outputs as a list. Raises :class:`JobFailed` for the first failure in the order of the records."""
        return values_of(self.imap(items, keys=keys))

    def run(
        self,
        items: Iterable[In],
        *,
        keys: Optional[Iterable[Any]] = None,
        progress: Union[bool, str, None] = None,
    ) -> RunSummary:
        """Have all items worked on for what the stages do with them: outputs are dropped, and failures are counted.

        >>> import operator
        >>> with Pipeline().stage(operator.neg, workers=1) as pipeline:
        ...     pipeline.run([1, "a"]).failures[0].error.splitlines()[0]
        "in neg: TypeError: bad operand type for unary -: 'str'"
        """
        ok, failed = 0, 0
        failures: list[Record] = []
        total = 0
        counted = Counted(items)
        for record in self.imap(counted.sized(), keys=keys, progress=progress):
            total += 1
            ok += record.ok
            failed += not record.ok
            if not record.ok and len(failures) < MOST_FAILURES:
                failures.append(record)
        return RunSummary(ok, failed, counted.count - total, tuple(failures), self.report())

    def __repr__(self) -> str:
        return shown_or_plain(self._shown, self)

    def _shown(self) -> str:
        state = state_text(self)
        return f"Pipeline({self._names()})" + ("" if state is None else f": {state}")

    def _started(self, has_keys: bool) -> tuple[StageWorkers, Line]:
        """Return workers that no other call has, and start them if there are none."""
        options, order, _, _ = self._settings
        while True:
            with self._lock:
                self._check_open()
                assert self._line is not None, "imap has made it"
                if not self._idle:
                    keeping = {"has_keys": has_keys, "in_order": order == "input"}
                    workers = StageWorkers(self._line.stages, options, self._objects, **keeping)
                    self._workers.append(workers)
                    return workers, self._line
                workers = self._idle.pop()
            # Without the lock: it waits for what the workers have begun.
            if self._keeps_workers():
                if self._are_usable(workers):
                    return workers, self._line
                workers.has_failed = True
            self._end(workers)

    def _are_usable(self, workers: StageWorkers) -> bool:
        try:
            return workers.are_usable()
        except BaseException:
            # Ctrl-C: what they have begun is not waited for.
            workers.has_failed = True
            self._end(workers)
            raise

    def _release(self, workers: StageWorkers, *, is_dropped: bool) -> None:
        """Keep the workers of a call for the next, or end them."""
        with self._lock:
            self._last = workers
            # Of a call that was dropped, nothing waits for what they have begun but the next call.
            if workers in self._workers and not workers.has_failed and (is_dropped or self._keeps_workers()):
                self._idle.append(workers)
                return
        self._end(workers)

    def _take_workers(self) -> list[AnyWorkers]:
        ending = super()._take_workers()
        self._idle.clear()
        return ending

    def _keeps_workers(self) -> bool:
        return self._settings.options.journal is None


class Parts(Steps, Generic[In, Parent, Out]):
    """A pipeline with an open expansion, made by `Pipeline.expand`: its stages work on parts.

    `gather` ends the expansion. Until then it has no `imap`, `map` and `run`, and no second expansion.
    """

    @overload
    def stage(self, work: Callable[[Out], Next], /, **options: Unpack[StageOptions]) -> Parts[In, Parent, Next]: ...
    @overload
    def stage(
        self,
        work: Callable[[list[Out]], Iterable[Next]],
        /,
        *,
        batch: Union[int, Literal["auto"]],
        **options: Unpack[StageOptions],
    ) -> Parts[In, Parent, Next]: ...
    @overload
    def stage(
        self,
        load: Optional[Callable[[Context], State]],
        work: Callable[[State, Out], Next],
        /,
        **options: Unpack[StageOptions],
    ) -> Parts[In, Parent, Next]: ...
    @overload
    def stage(
        self,
        load: Optional[Callable[[Context], State]],
        work: Callable[[State, list[Out]], Iterable[Next]],
        /,
        *,
        batch: Union[int, Literal["auto"]],
        **options: Unpack[StageOptions],
    ) -> Parts[In, Parent, Next]: ...
    def stage(self, *functions: Any, **options: Any) -> Parts[Any, Any, Any]:
        """Add a stage for the parts: see `Pipeline.stage`."""
        return parts_of(self._with_stage(functions, options), self._settings)

    def gather(self) -> Pipeline[In, tuple[Parent, list[Out]]]:
        """End the expansion: the next stage gets ``(parent, outputs)``, the outputs in the order of the parts.

        The parent is the output that was expanded. If a part fails, its parent does, with the first part that failed,
        and the parts that no worker has begun are given up.
        """
        if isinstance(self._steps[-1], Expand):
            raise ValueError(f"expand({self._steps[-1].name}) needs a stage for its parts before gather()")
        return pipeline_of((*self._steps, Gather()), self._settings)

    def __getattr__(self, name: str) -> Any:
        if name in ("amap", "expand", "imap", "map", "run"):
            expansion = next(step.name for step in reversed(self._steps) if isinstance(step, Expand))
            raise AttributeError(f"the parts of expand({expansion}) are not gathered: call gather() before {name}()")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        return shown_or_plain(lambda: f"Parts({self._names()})", self)


def parts_of(steps: tuple[Step, ...], settings: Settings) -> Parts[Any, Any, Any]:
    """Make the open expansion of a pipeline with these steps."""
    parts: Parts[Any, Any, Any] = Parts.__new__(Parts)
    Steps.__init__(parts, steps, settings)
    return parts


def pipeline_of(steps: tuple[Step, ...], settings: Settings) -> Pipeline[Any, Any]:
    """Make a pipeline of these steps."""
    pipeline: Pipeline[Any, Any] = Pipeline.__new__(Pipeline)
    pipeline._set_up(steps, settings)
    return pipeline
