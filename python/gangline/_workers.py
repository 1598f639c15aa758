"""The workers of a pool, as the native part has them, and a thread that shows what they print."""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any, Callable, Optional, Union

from gangline import _start
from gangline._broker import native_nats
from gangline._definitions import surroundings
from gangline._errors import NoWorkers
from gangline._modules import modules_of
from gangline._native import (
    NativeCalls,
    NativeObjects,
    NativePipeline,
    NativePool,
    NativePrints,
    NativeReport,
    NativeRun,
    NativeStream,
)
from gangline._options import Batch, ForkServer, Options, Time, seconds
from gangline._report import report_of

__all__ = [
    "AnyWorkers",
    "JournaledWorkers",
    "Setup",
    "StageWorkers",
    "Workers",
    "end_abandoned",
    "end_all",
    "native_options",
    "native_stage",
    "show",
    "write_reports",
]

#: The script of a fork server, which this process does not import.
FORK_SERVER = os.path.join(os.path.dirname(_start.__file__), "_fork_server.py")

#: What workers are made from: the pickled functions, the text for other machines, or what is called with the place of a
#: thread.
Setup = Union[bytes, str, Callable[[Any], Any]]


class AnyWorkers:
    """Workers, as the native part has them."""

    def __init__(self, native: Union[NativePool, NativePipeline]) -> None:
        self._native = native
        self.gpus = [None if place is None else tuple(place) for place in native.places()]
        #: Whether a call has failed with an error of the pool, so that the next call needs other workers.
        self.has_failed = False
        #: Whether the report has the names of items.
        self.are_named = True

    def open(self, *, in_order: bool, window: Optional[int]) -> Union[NativeStream, NativeRun]:
        """Open the stream of a call."""
        raise NotImplementedError

    def report(self) -> Optional[NativeReport]:
        """Return what has happened; in stages, in the last call that has ended."""
        return self._native.report()

    def close(self) -> None:
        """End the workers in order, once those in work have ended."""
        self._native.close()

    def kill(self) -> None:
        """End the workers now."""
        self._native.terminate()


class Workers(AnyWorkers):
    """The workers of a pool, for all of its calls."""

    def __init__(
        self, options: Options, setup: Setup, functions: Any, objects: NativeObjects, *, are_named: bool
    ) -> None:
        self._pool = NativePool(native_options(options, setup, functions), are_named, forward, objects)
        super().__init__(self._pool)
        self.are_named = are_named

    def open(self, *, in_order: bool, window: Optional[int]) -> NativeStream:
        """Open a stream of at most so many items; without a number, of as many as keep the workers busy."""
        return self._pool.open_stream(in_order, window)

    def call(self, packed: Any, deadline: Optional[float]) -> Any:
        """Work on one packed input, and wait for its outcome."""
        return self._pool.call(packed, deadline)

    def begin(self, calls: NativeCalls, number: int, packed: Any, deadline: Optional[float]) -> None:
        """Begin a call, whose outcome comes there under this number."""
        self._pool.begin(calls, number, packed, deadline)

    def try_begin(self, calls: NativeCalls, number: int, packed: Any, deadline: Optional[float]) -> None:
        """Begin a call if there is a place for it. Raises :class:`Full`."""
        self._pool.try_begin(calls, number, packed, deadline)

    def refuse_own_thread(self) -> None:
        """Fail on a thread of these workers, which must not wait for them."""
        self._pool.refuse_own_thread()

    def drain(self, timeout: float) -> bool:
        """Refuse new calls, and wait until those that were accepted are answered. Returns whether all were."""
        return self._pool.drain(timeout)

    def note(self, error: BaseException) -> None:
        """Take note of an error that has ended a call. If no worker is left, the next call needs other ones."""
        if isinstance(error, NoWorkers):
            self.has_failed = True


class StageWorkers(AnyWorkers):
    """The workers of all stages of a pipeline, for one call after the other."""

    def __init__(
        self,
        stages: Sequence[dict[str, Any]],
        options: Options,
        objects: NativeObjects,
        *,
        has_keys: bool,
        in_order: bool,
    ) -> None:
        keeping = {
            "in_order": in_order,
            "window": options.window,
            "journal": options.journal,
            "resume": options.resume,
            "has_keys": has_keys,
        }
        self._pipeline = NativePipeline(list(stages), keeping, forward, objects)
        super().__init__(self._pipeline)

    def open(self, *, in_order: bool, window: Optional[int]) -> NativeRun:
        """Begin a run, whose order and windows are those of the stages."""
        return self._pipeline.open_run()

    def are_usable(self) -> bool:
        """Wait until the call before has ended, and return whether another may follow."""
        return self._pipeline.is_usable()


class JournaledWorkers(StageWorkers):
    """The workers of one call of a pool with a journal."""

    def __init__(
        self,
        options: Options,
        setup: Setup,
        functions: Any,
        objects: NativeObjects,
        *,
        has_keys: bool,
        in_order: bool,
    ) -> None:
        stage = native_stage(native_options(options, setup, functions), window=options.window)
        super().__init__([stage], options, objects, has_keys=has_keys, in_order=in_order)


def native_stage(
    options: Optional[dict[str, Any]],
    *,
    name: Optional[str] = None,
    index: Optional[int] = None,
    window: Optional[int] = None,
    expansion: Optional[dict[str, Any]] = None,
    gathers: bool = False,
) -> dict[str, Any]:
    """Return a stage as the native part reads it: without options, it passes everything on."""
    return {
        "name": name,
        "index": index,
        "options": options,
        "window": window,
        "expansion": expansion,
        "gathers": gathers,
    }


def native_options(options: Options, setup: Setup, functions: Any = None) -> dict[str, Any]:
    """Return the options as the native part reads them. A fork server imports what the functions name."""
    batch = options.batch
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    server = options.fork_server
    return {
        "functions": setup,
        "cluster": None if options.nats is None else native_nats(options.nats),
        "placement": {
            "gpus": options.gpus,
            "devices": options.devices,
            "workers": options.workers,
            "share": options.share,
            "threads": options.threads,
            "sees_all": options.sees_all,
        },
        "command": (sys.executable, [*flags, _start.__file__]),
        "fork_server": None
        if server is None
        else {"arguments": [*flags, FORK_SERVER], "preparation": preparation_of(server, functions)},
        "batch": (None,) if batch == "auto" else (batch.most,) if isinstance(batch, Batch) else batch,
        "queue": options.queue,
        "limits": {
            "retries": options.retries,
            "min_workers": options.min_workers,
            "max_restarts": options.max_restarts or 0,
            "retry_delay": time_text(options.retry_delay),
            "timeout": time_text(options.timeout),
            "start_timeout": time_text(options.start_timeout),
            "end_timeout": time_text(options.end_timeout),
            "batch_wait": time_text(options.batch_wait),
            "latency": time_text(batch.latency if isinstance(batch, Batch) else None),
        },
        "verbose": options.verbose,
        "lock_gpus": {"waits": options.lock_gpus == "wait"} if options.lock_gpus else None,
    }


def preparation_of(server: ForkServer, functions: Any) -> bytes:
    """Return what `_fork_server` reads: what it imports, and how."""
    named = [name for name in modules_of(functions) if name not in server.preload]
    return pickle.dumps((*surroundings(), (list(server.preload), named)), 5)


def time_text(time: Optional[Time]) -> Optional[str]:
    """Return a time as the native part reads it."""
    return None if time is None else seconds(time)


def forward(prints: NativePrints) -> None:
    """Start to show what workers print."""
    threading.Thread(target=_forward, args=(prints,), name="gangline-prints", daemon=True).start()


def _forward(prints: NativePrints) -> None:
    while (printed := prints.take()) is not None:
        show(printed.decode(errors="replace"))


def show(text: str) -> None:
    """Write to standard error. If that was closed, the text is lost, and what waits for this thread is not."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        sys.stderr.write(text)
        sys.stderr.flush()


def end_all(ending: Sequence[AnyWorkers], options: Options) -> None:
    """End workers in order, and write their reports."""
    for index, workers in enumerate(ending):
        try:
            workers.close()
        except BaseException:
            for left in ending[index:]:
                left.kill()
            raise
        write_reports(workers, options)


def write_reports(workers: AnyWorkers, options: Options) -> None:
    """Write the reports of workers that have ended."""
    if options.report:
        report = report_of(workers.report())
        for path in options.report:
            report.save(path)


def end_abandoned(owner: int, ending: list[AnyWorkers], options: Options) -> None:
    """End the workers of what was dropped, or not closed before the interpreter ends, unless this is a fork."""
    if os.getpid() != owner:
        return
    try:
        # After an exception nothing is waited for.
        if getattr(sys, "last_type", None) is None:
            end_all(ending, options)
        else:
            for workers in ending:
                workers.kill()
    finally:
        ending.clear()
