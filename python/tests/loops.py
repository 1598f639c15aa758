"""asyncio, trio and anyio, as tests of tasks use them."""

import asyncio
import gc
import os

import pytest

__all__ = ["Anyio", "AnyioOnTrio", "Asyncio", "Trio", "counted", "descriptors"]


class Asyncio:
    """What tests need of asyncio; the other libraries have the same."""

    def run(self, main):
        return asyncio.run(main())

    async def gather(self, *functions):
        return await asyncio.gather(*(function() for function in functions))

    async def in_thread(self, function):
        return await asyncio.get_running_loop().run_in_executor(None, function)

    async def cancel_once(self, ready, function):
        """Start a task, and cancel it once something is ready. Returns whether it was cancelled."""
        task = asyncio.ensure_future(function())
        await self.in_thread(ready)
        task.cancel()
        return isinstance((await asyncio.gather(task, return_exceptions=True))[0], asyncio.CancelledError)

    def event(self):
        return asyncio.Event()


class Trio:
    def __init__(self):
        self._trio = pytest.importorskip("trio")
        self.event = self._trio.Event

    def run(self, main):
        return self._trio.run(main)

    async def gather(self, *functions):
        results = {}

        async def keep(at, function):
            results[at] = await function()

        async with self._trio.open_nursery() as nursery:
            for at, function in enumerate(functions):
                nursery.start_soon(keep, at, function)
        return [results[at] for at in range(len(functions))]

    async def in_thread(self, function):
        return await self._trio.to_thread.run_sync(function)

    async def cancel_once(self, ready, function):
        async with self._trio.open_nursery() as nursery:
            scope = self._trio.CancelScope()

            async def run():
                with scope:
                    await function()

            nursery.start_soon(run)
            await self.in_thread(ready)
            scope.cancel()
        return scope.cancelled_caught


class Anyio:
    backend = "asyncio"

    def __init__(self):
        self._anyio = pytest.importorskip("anyio")
        pytest.importorskip(self.backend)
        self.event = self._anyio.Event

    def run(self, main):
        return self._anyio.run(main, backend=self.backend)

    async def gather(self, *functions):
        results = {}

        async def keep(at, function):
            results[at] = await function()

        async with self._anyio.create_task_group() as group:
            for at, function in enumerate(functions):
                group.start_soon(keep, at, function)
        return [results[at] for at in range(len(functions))]

    async def in_thread(self, function):
        return await self._anyio.to_thread.run_sync(function)

    async def cancel_once(self, ready, function):
        scope = self._anyio.CancelScope()

        async def run():
            with scope:
                await function()

        async with self._anyio.create_task_group() as group:
            group.start_soon(run)
            await self.in_thread(ready)
            scope.cancel()
        return scope.cancelled_caught


class AnyioOnTrio(Anyio):
    backend = "trio"


def descriptors():
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


async def counted(pulled, numbers):
    for number in numbers:
        pulled.append(number)
        yield number
