"""SABER's pool of GPUs."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Callable, Literal, Optional, Union

from gangline._context import Context
from gangline._options import one_of, visible_gpus
from gangline._pool import Pool
from gangline._records import Record

__all__ = ["GPUPool"]

_GpuId = Union[int, str]


class GPUPool:
    """A model on each GPU, and tasks that are handed to the GPU that is free.

    ``init_fn(gpu_id, *init_args, **init_kwargs)`` returns the models of a GPU. A worker sees all GPUs, so that
    ``gpu_id`` is a number of ``torch.cuda``. With ``num_workers`` and without a GPU, tasks run on the CPU, and
    ``gpu_id`` is the number of the worker.

    As in the original, workers are threads by default (``approach="threading"``): tasks and models share this process,
    such as a store that is opened once for writing, and results are not pickled. With ``approach="multiprocessing"``
    each worker is a process: a crash costs one task, and Python code of several tasks runs at once. What tasks share
    has to be opened in ``init_fn`` then.
    """

    def __init__(
        self,
        init_fn: Optional[Callable[..., Any]] = None,
        init_args: Optional[Sequence[Any]] = None,
        init_kwargs: Optional[dict[str, Any]] = None,
        gpu_ids: Union[Iterable[_GpuId], Literal["all"], None] = None,
        num_workers: Optional[int] = None,
        approach: Literal["threading", "multiprocessing"] = "threading",
        verbose: bool = False,
    ) -> None:
        one_of("approach", approach, ("threading", "multiprocessing"))
        self._backend: Literal["processes", "threads"] = "threads" if approach == "threading" else "processes"
        self._load = functools.partial(load_models, init_fn, tuple(init_args or ()), dict(init_kwargs or {}))
        gpus: list[_GpuId] = list(visible_gpus() if gpu_ids is None or gpu_ids == "all" else gpu_ids)
        if not gpus and num_workers is None:
            raise RuntimeError("no GPU was found; with num_workers=n tasks run on the CPU")
        # Each GPU in turn, if there are more workers.
        self._gpus = [gpus[at % len(gpus)] for at in range(num_workers or len(gpus))] if gpus else []
        self._num_workers = num_workers
        self._verbose = verbose
        self._pool: Optional[Pool[Any]] = None

    def execute(
        self,
        fn: Callable[..., Any],
        tasks: Iterable[Any],
        task_ids: Optional[Iterable[Any]] = None,
        progress_desc: Optional[str] = None,
        **kwargs: Any,
    ) -> list[dict[str, Any]]:
        """Call ``fn(*task, gpu_id=.., models=.., **kwargs)`` for each task, and return a record for each, in order.

        A task is a tuple or list of arguments, a dictionary of named ones, a pair of both, or the only argument. A
        record has ``success``, ``task_id``, ``gpu_id`` and ``processing_time``, and ``result``, or ``error`` and
        ``traceback``. ``models`` is left out if there are none and ``fn`` does not take it.
        """
        keys: Iterable[Any] = itertools.count()
        if task_ids is not None:
            keys, tasks = list(task_ids), list(tasks)
            if len(keys) != len(tasks):
                raise ValueError(f"{len(keys)} task_ids for {len(tasks)} tasks")
        calls = ((fn, *arguments_of(task), kwargs) for task in tasks)
        progress = (progress_desc or "Processing") if self._verbose else False
        pool = self._started()
        try:
            records = [as_dict(record) for record in pool.imap(calls, keys=keys, progress=progress)]
        except BaseException:
            self._pool = None
            pool.terminate()
            raise
        if self._verbose:
            print(pool.report(), flush=True)
        return records

    def shutdown(self) -> None:
        """End the workers. ``execute`` starts new ones."""
        if self._pool is not None:
            pool, self._pool = self._pool, None
            pool.close()

    def __enter__(self) -> GPUPool:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.shutdown()

    def _started(self) -> Pool[Any]:
        if self._pool is None:
            workers = None if self._gpus else self._num_workers
            self._pool = Pool(
                self._load,
                call_task,
                gpus=self._gpus or None,
                workers=workers,
                visible="all",
                backend=self._backend,
            )
        return self._pool


def load_models(
    init_fn: Optional[Callable[..., Any]], args: Sequence[Any], kwargs: dict[str, Any], context: Context
) -> tuple[_GpuId, Any]:
    """Make the state of a worker: its GPU, and its models."""
    gpu = gpu_of(context.gpus, context.worker)
    return gpu, None if init_fn is None else init_fn(gpu, *args, **kwargs)


def call_task(state: tuple[_GpuId, Any], call: tuple[Callable[..., Any], Any, Any, Any]) -> Any:
    """Run a task."""
    gpu, models = state
    fn, args, named, kwargs = call
    given = {**named, **kwargs, "gpu_id": gpu}
    if models is not None or takes_models(fn):
        given["models"] = models
    return fn(*args, **given)


def takes_models(fn: Callable[..., Any]) -> bool:
    """Whether the function has a parameter for the models."""
    try:
        parameters = inspect.signature(fn).parameters
    except (TypeError, ValueError):
        return False
    return "models" in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())


def arguments_of(task: Any) -> tuple[Sequence[Any], dict[str, Any]]:
    """Return the arguments that a task stands for.

    >>> arguments_of(("a.mrc", 2)), arguments_of({"x": 1}), arguments_of("a.mrc")
    ((('a.mrc', 2), {}), ((), {'x': 1}), (('a.mrc',), {}))
    >>> arguments_of((("a.mrc",), {"x": 1}))
    (('a.mrc',), {'x': 1})
    """
    if isinstance(task, dict):
        return (), task
    if isinstance(task, tuple) and len(task) == 2 and isinstance(task[1], dict):
        return (task[0] if isinstance(task[0], (list, tuple)) else (task[0],)), task[1]
    if isinstance(task, (list, tuple)):
        return task, {}
    return (task,), {}


def as_dict(record: Record) -> dict[str, Any]:
    """Return a record as the original has it."""
    result: dict[str, Any] = {
        "success": record.ok,
        "task_id": record.key,
        "gpu_id": gpu_of(record.gpus, record.worker),
        "processing_time": record.seconds,
    }
    if record.error is None:
        result["result"] = record.value
    else:
        result["error"], result["traceback"] = record.error.splitlines()[0], record.error
    return result


def gpu_of(gpus: Sequence[str], worker: Optional[int]) -> Any:
    """Return the number of a GPU; the name of one without a number; without GPUs the number of the worker."""
    if not gpus:
        return worker
    return int(gpus[0]) if gpus[0].isdigit() else gpus[0]
