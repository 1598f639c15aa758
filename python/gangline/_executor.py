"""A pool as an executor of ``concurrent.futures``."""

from __future__ import annotations

import concurrent.futures
import os
import sys
import threading
import weakref
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Literal, Optional, Union

from gangline import _futures
from gangline._errors import Closed
from gangline._pool import Pool
from gangline._shown import shown_or_plain
from gangline._types import ExecutorOptions, Out
from gangline._worker import call_function

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, Unpack

    Params = ParamSpec("Params")

__all__ = ["Executor"]


class Executor(concurrent.futures.Executor):
    """Workers that call any function: an executor of ``concurrent.futures``, also for asyncio and dask.

    ``workers``, ``gpus``, ``devices``, ``backend`` and all further options are those of :class:`Pool`. Functions and
    arguments are sent as the values of a pool are: functions of a script, lambdas and closures too. A future is that
    of ``Pool.submit``: the exception of a call that fails is :class:`JobFailed`, with the ``record``.

    A worker is given a call in good time before it is free: at most two calls for each worker count as running, which
    ``cancel()`` and ``shutdown(cancel_futures=True)`` leave alone. At the end of the program, calls that are open are
    worked on, as with the executors of the standard library.

    >>> with Executor(workers=2) as executor:
    ...     list(executor.map(pow, [2, 3], [5, 2]))
    [32, 9]
    """

    def __init__(
        self,
        workers: Optional[int] = None,
        *,
        gpus: Union[str, int, Iterable[Union[str, int]], None] = None,
        devices: Union[str, Iterable[str], None] = None,
        backend: Literal["processes", "threads"] = "processes",
        **options: Unpack[ExecutorOptions],
    ) -> None:
        preload = options.pop("preload", False)
        self._pool: Pool[None] = Pool(
            None, call_function, workers=workers, gpus=gpus, devices=devices, backend=backend, **options
        )
        # The name under which dask looks for it.
        self._max_workers = self._pool._options.count_workers()
        self._pool._open_queue(2 * self._max_workers, preload=preload)
        self._is_shut_down = False
        # In the order of their submission.
        self._open: dict[concurrent.futures.Future[Any], None] = {}
        self._owner = os.getpid()
        # Open futures hold the executor, so it is dropped without any, or the program ends.
        self._finalizer = weakref.finalize(self, finish, self._pool, self._open, self._owner)

    def submit(
        self, fn: Callable[Params, Out], /, *args: Params.args, **kwargs: Params.kwargs
    ) -> _futures.CallFuture[Out]:
        """Begin to call ``fn(*args, **kwargs)`` on a worker, and return the future of what it returns."""
        if self._is_shut_down:
            raise Closed("cannot schedule new futures after shutdown")
        future: _futures.CallFuture[Out] = self._pool._submit((fn, args, kwargs), waits_only=True)
        self._open[future] = None
        # The callback stays with the future, and holds the executor until then only.
        held = [self]
        future.add_done_callback(lambda done: held.pop()._open.pop(done, None))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls, and end the workers once the open ones are done.

        With ``wait=False`` it returns at once. With ``cancel_futures``, calls that no worker was given are cancelled.
        """
        self._is_shut_down = True
        if os.getpid() != self._owner:
            return
        if cancel_futures:
            # The last first: the place of a cancelled call goes to none of the others.
            for future in reversed(list(self._open)):
                future.cancel()
        if wait:
            self._end()
        else:
            threading.Thread(target=self._end, name="gangline-shutdown").start()

    def __repr__(self) -> str:
        shut_down = " (shut down)" if getattr(self, "_is_shut_down", False) else ""
        return shown_or_plain(lambda: self._pool._shown("Executor") + shut_down, self)

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        if kind is None or issubclass(kind, Exception):
            self.shutdown()
        else:
            # After Ctrl-C nothing is waited for.
            self._is_shut_down = True
            self._pool.terminate()

    def _end(self) -> None:
        concurrent.futures.wait(list(self._open))
        self._pool.close()


def finish(pool: Pool[None], open_futures: dict[concurrent.futures.Future[Any], None], owner: int) -> None:
    """End the workers of an executor that was dropped, or not shut down before the program ends."""
    if os.getpid() != owner:
        return
    # After an exception nothing is waited for.
    if getattr(sys, "last_type", None) is not None:
        pool.terminate()
    elif _futures.is_settling():
        # Its last call was just done. Futures of other pools must not wait for the end of these workers.
        threading.Thread(target=pool.close, name="gangline-shutdown").start()
    else:
        concurrent.futures.wait(list(open_futures))
        pool.close()
