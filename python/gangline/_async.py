"""Calls from asyncio and trio, and so from anyio: one descriptor wakes the event loop for all of them."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
import sys
import weakref
from collections.abc import AsyncIterable, Awaitable, Iterable, Sequence
from typing import Any, Callable, Optional, TypeVar, Union

from gangline._call import MOST_TAKEN, AnyValues, Call, Taken, check_owner
from gangline._calls import Begin, CallItem, Waiting
from gangline._errors import PoolError
from gangline._records import Record
from gangline._workers import AnyWorkers

__all__ = ["AsyncCall", "Place", "call", "place"]

T = TypeVar("T")

#: Items that are read, or records that are yielded, before the loop has its turn.
MOST_IN_TURN = 64


class Place(Waiting):
    """Where the tasks of one event loop wait."""

    #: The loop, or what stands for it.
    home: object

    def new_event(self) -> Any:
        """Return an event of the loop's library: ``set()``, and ``await wait()``."""
        raise NotImplementedError

    def start(self, function: Callable[[], Awaitable[None]]) -> Callable[[], object]:
        """Start a task, and return what cancels it."""
        raise NotImplementedError

    async def run(self, function: Callable[[], T]) -> T:
        """Call a function that blocks on a thread."""
        raise NotImplementedError

    async def take_turns(self) -> None:
        """Let other tasks run."""
        raise NotImplementedError


class AsyncioPlace(Place):
    """Where the tasks of an asyncio loop wait. The loop holds it, until it is closed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.home = self._loop = loop
        loop.add_reader(self.native.fileno(), self.settle_ready)

    def new_event(self) -> asyncio.Event:
        return asyncio.Event()

    def start(self, function: Callable[[], Awaitable[None]]) -> Callable[[], object]:
        task = asyncio.ensure_future(function())

        def cancel() -> None:
            # Nothing runs in a loop that was closed.
            if not self._loop.is_closed():
                task.cancel()

        return cancel

    async def run(self, function: Callable[[], T]) -> T:
        return await self._loop.run_in_executor(None, function)

    async def take_turns(self) -> None:
        await asyncio.sleep(0)


class TrioPlace(Place):
    """Where the tasks of a run of trio wait. A system task, which ends with the run, holds it."""

    def __init__(self, trio: Any, token: object) -> None:
        super().__init__()
        self.home = token
        self._trio = trio
        trio.lowlevel.spawn_system_task(self._serve, name="gangline calls")

    def new_event(self) -> Any:
        return self._trio.Event()

    def start(self, function: Callable[[], Awaitable[None]]) -> Callable[[], object]:
        scope = self._trio.CancelScope()

        async def run() -> None:
            with scope:
                await function()

        self._trio.lowlevel.spawn_system_task(run, name="gangline input", context=contextvars.copy_context())
        cancel: Callable[[], object] = scope.cancel
        return cancel

    async def run(self, function: Callable[[], T]) -> T:
        result: T = await self._trio.to_thread.run_sync(function)
        return result

    async def take_turns(self) -> None:
        await self._trio.lowlevel.checkpoint()

    async def _serve(self) -> None:
        while True:
            await self._trio.lowlevel.wait_readable(self.native.fileno())
            self.settle_ready()


# By the identity of what stands for a loop. The loops hold their places.
_places: weakref.WeakValueDictionary[int, Place] = weakref.WeakValueDictionary()


def place() -> Place:
    """Return the place of the loop that runs this task."""
    home, make = running_loop()
    found = _places.get(id(home))
    # A fork of the process has a copy of the loop, whose place is the parent's.
    if found is None or found.home is not home or found.owner != os.getpid():
        found = _places[id(home)] = make()
    return found


def running_loop() -> tuple[object, Callable[[], Place]]:
    """Return what stands for the loop that runs this task, and what makes its place."""
    # trio first: as a guest it runs within a loop of asyncio.
    trio: Any = sys.modules.get("trio")
    if trio is not None:
        try:
            # A token alone is there in tasks of the host too.
            trio.lowlevel.current_task()
            token: object = trio.lowlevel.current_trio_token()
        except RuntimeError:
            pass
        else:
            return token, lambda: TrioPlace(trio, token)
    loop = asyncio.get_running_loop()
    return loop, lambda: AsyncioPlace(loop)


async def call(here: Place, begin: Begin, item: CallItem, deadline: Optional[float]) -> Record:
    """Work on one input. A task that is cancelled gives the call up."""
    answers: list[Union[Taken, BaseException]] = []
    answered = here.new_event()

    def settle(answer: Union[Taken, BaseException]) -> None:
        answers.append(answer)
        answered.set()

    item.workers.refuse_own_thread()
    number = here.begin(begin, item.packed, deadline, settle)
    try:
        await answered.wait()
    finally:
        here.give_up(number)
    return item.record(answers[0])


class AsyncCall(Call):
    """The items and the records of ``amap``."""

    def __init__(
        self,
        here: Place,
        workers: AnyWorkers,
        values: AnyValues,
        items: Union[Iterable[Any], AsyncIterable[Any]],
        keys: Callable[[int, Any], Any],
        name: Optional[Callable[[Any, Any], str]],
        observe: Callable[[Sequence[Record], int], None],
        owner: int,
    ) -> None:
        super().__init__(workers, values, items, keys, name, observe, owner)
        self._here = here

    def start(self, is_ordered: bool, window: Optional[int]) -> None:
        """Start to read."""
        self._native = self._workers.open(in_order=is_ordered, window=window)
        self._most = MOST_TAKEN if window is None else 1
        self._woken = _Wakeup(self._here)
        self._cancel = self._start_reader()

    async def next_records(self) -> list[Record]:
        """Wait for records, and return some; none after the last. Then raises the exception of the input, if any."""
        while taken := await self._next_taken():
            # None are of items that an earlier run had done.
            if records := self._records_of(taken):
                return records
        if self._input_error is not None:
            raise self._input_error
        return []

    async def _next_taken(self) -> list[Taken]:
        native = self._native
        while True:
            check_owner(self._owner)
            try:
                taken = native.take_ready(self._here.native, self._woken.number, self._most)
            except PoolError:
                self._workers.has_failed = True
                raise
            if taken is not None:
                await self._woken.passed(len(taken))
                return taken
            await self._woken.wait()

    def close(self) -> None:
        """Give up what has not come."""
        self._woken.forget()
        if os.getpid() == self._owner:
            self._native.close()
            self._cancel()

    def _start_reader(self) -> Callable[[], object]:
        """Start to read the items: asynchronous ones in the loop, others on a thread. Returns what ends it."""
        if isinstance(self._items, AsyncIterable):
            return self._here.start(functools.partial(self._read, self._items))
        self._start_feeder()
        return lambda: None

    async def _read(self, items: AsyncIterable[Any]) -> None:
        room = _Wakeup(self._here)
        try:
            source = items.__aiter__()
            while await self._has_room(room):
                try:
                    value = await source.__anext__()
                except StopAsyncIteration:
                    return
                self._send(iter((value,)), 1)
        except BaseException as error:
            self._input_error = error
            if not isinstance(error, Exception):
                raise
        finally:
            room.forget()
            self._native.finish()

    async def _has_room(self, room: _Wakeup) -> bool:
        native = self._native
        while (items := native.room_ready(self._here.native, room.number)) is None:
            await room.wait()
        await room.passed(1)
        return items > 0


class _Wakeup:
    """Waits until a stream is woken."""

    def __init__(self, here: Place) -> None:
        self._here = here
        self._woken = here.new_event()
        self._passed = 0
        self.number = here.watch(self._wake)

    def _wake(self, _: None) -> None:
        self._woken.set()

    async def wait(self) -> None:
        await self._woken.wait()
        self._woken = self._here.new_event()
        self._passed = 0

    async def passed(self, items: int) -> None:
        """Let other tasks run, if so many items have passed without a wait."""
        self._passed += items
        if self._passed >= MOST_IN_TURN:
            self._passed = 0
            await self._here.take_turns()

    def forget(self) -> None:
        """Ask for no more wake-ups."""
        self._here.forget(self.number)
