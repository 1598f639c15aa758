"""Calls from tasks of asyncio, trio and anyio."""

import asyncio
import gc
import itertools
import threading

import pytest
import tasks
from conftest import PATIENCE, wait_until
from gates import Gates
from loops import counted, descriptors

from gangline import Closed, JobFailed, Pool, PoolError


@pytest.fixture
def gates(tmp_path):
    return Gates(tmp_path)


@pytest.mark.parametrize("backend", ["processes", "threads"])
def test_a_task_calls(library, backend):
    async def main():
        assert await pool.acall(3) == 3
        with pytest.raises(JobFailed, match="ValueError: bad 2") as failed:
            await pool.acall(2)
        assert failed.value.record.key == "2"
        calls = [lambda at=at: pool.acall(at) for at in range(0, 300, 3)]
        assert await library.gather(*calls) == list(range(0, 300, 3))

    with Pool(None, tasks.fail_on, workers=2, key=str, backend=backend) as pool:
        library.run(main)
        library.run(main)
        assert pool(4) == 4


def test_a_task_that_is_cancelled_gives_its_call_up(library, gates):
    async def main():
        async def call():
            await pool.acall(gates.item("given up"))

        def ready():
            gates.await_begun("first")

        first = pool.submit(gates.item("first"))
        assert await library.cancel_once(ready, call)
        gates.open("first", "last")
        assert await pool.acall(gates.item("last")) == "last"
        assert first.result() == "first"

    with Pool(None, tasks.hold, workers=1) as pool:
        library.run(main)
    assert not gates.has_begun("given up")


def test_calls_of_a_pool_that_is_closed_have_an_error(library, gates):
    async def main():
        async def call():
            with pytest.raises(Closed):
                await pool.acall(gates.item("held"))

        async def close():
            await library.in_thread(lambda: gates.await_begun("held"))
            closing = threading.Thread(target=pool.close)
            closing.start()
            return closing

        _, closing = await library.gather(call, close)
        gates.open("held")
        await library.in_thread(closing.join)
        with pytest.raises(Closed):
            await pool.acall(1)

    with Pool(None, tasks.hold, workers=1) as pool:
        library.run(main)


@pytest.mark.parametrize("order", ["input", "completion"])
@pytest.mark.parametrize("kind", ["list", "generator", "asynchronous"])
def test_records_come_to_a_task(library, kind, order):
    async def main():
        for count in (0, 1, 300):
            numbers = range(count)
            items = {"list": numbers, "generator": (x for x in numbers), "asynchronous": counted([], numbers)}[kind]
            records = [record async for record in pool.amap(items, keys=map(str, numbers))]
            in_order = records if order == "input" else sorted(records)
            assert [(record.index, record.key) for record in in_order] == [(at, str(at)) for at in numbers]
            assert [record.value for record in in_order] == [None if at % 3 == 2 else at for at in numbers]
            assert all("bad" in record.error for record in records if not record.ok)

    with Pool(None, tasks.fail_on, workers=2, order=order) as pool:
        library.run(main)
        assert "301 items in" in pool.report()


@pytest.mark.parametrize("is_asynchronous", [True, False])
def test_items_are_read_no_further_than_the_window(library, is_asynchronous):
    async def main():
        pulled = []
        numbers = itertools.count()
        items = counted(pulled, numbers) if is_asynchronous else (pulled.append(at) or at for at in numbers)
        records = pool.amap(items)
        assert pulled == []
        for taken in range(1, 30):
            assert (await records.__anext__()).value == taken - 1
            await library.gather(*[lambda: pool.acall(0)] * 3)
            assert len(pulled) <= taken + 5
        await records.aclose()
        seen = len(pulled)
        assert [record.value async for record in pool.amap(range(3))] == [0, 1, 2]
        assert len(pulled) <= seen + 1

    with Pool(None, tasks.echo, workers=2, window=5) as pool:
        library.run(main)


def test_records_come_while_the_input_waits(library):
    async def main():
        gate = library.event()

        async def inputs():
            yield 1
            yield 2
            await gate.wait()
            yield 3

        records = pool.amap(inputs())
        assert [(await records.__anext__()).value for _ in range(2)] == [1, 2]
        gate.set()
        assert [record.value async for record in records] == [3]

    with Pool(None, tasks.echo, workers=2) as pool:
        library.run(main)


@pytest.mark.parametrize("is_asynchronous", [True, False])
def test_an_exception_of_the_input_comes_after_the_records_before_it(library, is_asynchronous):
    def broken():
        yield from (1, 2)
        raise LookupError("no more")

    async def asynchronous():
        for each in broken():
            yield each

    async def main():
        got = []
        with pytest.raises(LookupError, match="no more"):
            async for record in pool.amap(asynchronous() if is_asynchronous else broken()):
                got.append(record.value)
        assert got == [1, 2]
        assert await pool.acall(3) == 3

    with Pool(None, tasks.echo, workers=2) as pool:
        library.run(main)


def test_a_task_that_is_cancelled_ends_its_stream(library, gates):
    async def main():
        ended = []

        async def endless():
            try:
                for at in itertools.count():
                    yield gates.item(str(at))
            finally:
                ended.append(True)

        async def stream():
            async for record in pool.amap(endless()):
                assert record.value == "0"

        def ready():
            gates.await_begun("1")

        gates.open("0")
        assert await library.cancel_once(ready, stream)
        gates.open("1", "last")
        assert await pool.acall(gates.item("last")) == "last"
        gc.collect()
        await library.gather(*[lambda: pool.acall(gates.item("last"))] * 2)
        assert ended == [True]

    with Pool(None, tasks.hold, workers=1, window=4) as pool:
        library.run(main)
    assert not gates.has_begun("3")


def test_too_few_keys_are_an_error(library):
    async def main():
        with pytest.raises(ValueError, match="1 keys for 2 items"):
            pool.amap([1, 2], keys=["a"])
        with pytest.raises(ValueError, match="item 1 has no key: there are 1 keys"):
            [record async for record in pool.amap(counted([], [1, 2]), keys=["a"])]

    with Pool(None, tasks.echo, workers=1) as pool:
        library.run(main)


def test_a_loop_that_is_left_leaves_the_pool_usable(library):
    async def main():
        async for record in pool.amap(counted([], itertools.count())):
            if record.index == 3:
                break
        return await pool.acall(9)

    with Pool(None, tasks.echo, workers=2) as pool:
        assert [library.run(main) for _ in range(3)] == [9, 9, 9]


def test_other_tasks_have_their_turns(library):
    async def main():
        others = []

        async def other():
            for at in range(50):
                others.append(at)
                await pool.acall(at)

        async def stream():
            async for _ in pool.amap(counted([], itertools.count())):
                if len(others) == 50:
                    return True

        assert (await library.gather(stream, other))[0]

    with Pool(None, tasks.echo, workers=2) as pool:
        library.run(main)


def test_loops_of_many_threads_share_a_pool(library):
    got = {}

    def run(start):
        async def main():
            called = await library.gather(*[lambda at=at: pool.acall(at) for at in range(start, start + 20)])
            return called, [record.value async for record in pool.amap(range(start, start + 20))]

        got[start] = library.run(main)

    with Pool(None, tasks.square, workers=2) as pool:
        threads = [threading.Thread(target=run, args=(100 * at,)) for at in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    squares = {start: [x * x for x in range(start, start + 20)] for start in range(0, 400, 100)}
    assert got == {start: (each, each) for start, each in squares.items()}


def test_loops_leave_no_descriptor(library):
    async def main():
        return await pool.acall(1), [record.value async for record in pool.amap([2])]

    with Pool(None, tasks.echo, workers=1) as pool:
        library.run(main)
        before = descriptors()
        assert [library.run(main) for _ in range(20)] == [(1, [2])] * 20
        assert descriptors() <= before


def test_a_loop_that_is_closed_with_open_calls_leaves_nothing(gates):
    with Pool(None, tasks.hold, workers=1) as pool:
        pool.submit(gates.item("first"))
        gates.await_begun("first")
        before = descriptors()
        for at in range(5):
            loop = asyncio.new_event_loop()
            task = loop.create_task(pool.acall(gates.item(f"given up {at}")))
            records = pool.amap(counted([], itertools.repeat(gates.item("given up"))))
            next_record = loop.create_task(records.__anext__())
            loop.run_until_complete(asyncio.wait([task], timeout=0.01))
            loop.close()
            task._log_destroy_pending = next_record._log_destroy_pending = False
            del loop, task, records, next_record
        # Generators that are finalized are collected by a later look.
        assert wait_until(lambda: descriptors() <= before)
        gates.open("first", "last")
        assert pool(gates.item("last")) == "last"
    assert not any(gates.has_begun(f"given up {at}") for at in range(5))


def test_a_loop_that_stops_goes_on():
    async def call(value):
        return await pool.acall(value)

    with Pool(None, tasks.echo, workers=1) as pool:
        first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
        for at in range(5):
            assert first.run_until_complete(call(at)) == at
            assert second.run_until_complete(call(-at)) == -at
        before = descriptors()
        assert first.run_until_complete(call(7)) == 7
        assert descriptors() == before
        first.close()
        second.close()


def test_without_a_loop_there_is_an_error():
    with Pool(None, tasks.echo, workers=1) as pool:
        with pytest.raises(RuntimeError, match="no running event loop"):
            pool.acall(1).send(None)
        assert pool(1) == 1


def test_a_guest_of_asyncio_has_a_place_of_its_own():
    trio = pytest.importorskip("trio")

    async def main():
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        trio.lowlevel.start_guest_run(
            pool.acall, 3, run_sync_soon_threadsafe=loop.call_soon_threadsafe, done_callback=done.set_result
        )
        assert await pool.acall(4) == 16
        assert (await done).unwrap() == 9

    with Pool(None, tasks.square, workers=1) as pool:
        asyncio.run(main())


def test_without_workers_each_call_says_why(library):
    async def main():
        with pytest.raises(PoolError, match="no weights"):
            await pool.acall(1)
        with pytest.raises(PoolError, match="no weights"):
            [record async for record in pool.amap([1])]

    with Pool(tasks.load_fails, tasks.echo, workers=1) as pool:
        library.run(main)


def test_a_task_on_a_thread_does_not_wait_for_its_own_pool():
    pools = []
    work = {"call": lambda _, x: asyncio.run(pools[0].acall(x)), "stream": lambda _, x: asyncio.run(first_of(x))}

    async def first_of(x):
        return await pools[0].amap([x]).__anext__()

    for each in work.values():
        with Pool(None, each, workers=1, backend="threads") as pool:
            pools[:] = [pool]
            with pytest.raises(JobFailed, match="must not wait for this pool"):
                pool(1)


def test_ctrl_c_ends_a_loop(script, tmp_path):
    from test_calls import PREAMBLE

    process = script(
        PREAMBLE
        + f"""
import asyncio
async def main():
    await pool.acall(({str(tmp_path)!r}, "held"))
with gangline.Pool(None, tasks.hold, workers=1) as pool:
    threading.Thread(target=lambda: (tasks.wait_until(lambda: os.path.exists({str(tmp_path / "held.begun")!r})),
        os.kill(os.getpid(), signal.SIGINT)), daemon=True).start()
    asyncio.run(main())
"""
    )
    _, errors = process.communicate(timeout=PATIENCE)
    assert errors.rstrip().endswith("KeyboardInterrupt")
