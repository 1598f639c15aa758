"""Pipelines in tasks of asyncio, trio and anyio."""

import asyncio
import gc
import itertools
import os

import pytest
import stages
import tasks
from conftest import wait_until
from gates import Gates
from loops import counted, descriptors

from gangline import Closed, Forked, Pipeline, PoolError


@pytest.fixture
def gates(tmp_path):
    return Gates(tmp_path)


def sums(**options):
    """A pipeline that gives the number and the negative sum of the numbers below it."""
    return (
        Pipeline(**options)
        .stage(stages.fail_on_five, workers=1)
        .expand(range)
        .stage(abs, workers=2)
        .gather()
        .stage(stages.sum_up, workers=1)
    )


@pytest.mark.parametrize("order", ["input", "completion"])
@pytest.mark.parametrize("kind", ["list", "generator", "asynchronous"])
def test_records_come_to_a_task(library, kind, order):
    async def main():
        for count in (0, 1, 30):
            numbers = range(count)
            items = {"list": numbers, "generator": (x for x in numbers), "asynchronous": counted([], numbers)}[kind]
            records = [record async for record in pipeline.amap(items, keys=map(str, numbers))]
            in_order = records if order == "input" else sorted(records)
            assert [(record.index, record.key) for record in in_order] == [(at, str(at)) for at in numbers]
            values = [None if at == 5 else (at, sum(range(at))) for at in numbers]
            assert [record.value for record in in_order] == values
            assert all(
                record.error.startswith("in fail_on_five: ValueError: five") for record in records if not record.ok
            )

    with sums(order=order) as pipeline:
        library.run(main)
        assert (pipeline.report().ok, pipeline.report().failed) == (29, 1)
        assert pipeline.map([3]) == [(3, 3)]


def test_records_come_while_the_input_waits(library):
    async def main():
        gate = library.event()

        async def inputs():
            yield 1
            yield 2
            await gate.wait()
            yield 3

        records = pipeline.amap(inputs())
        assert [(await records.__anext__()).value for _ in range(2)] == [2, 4]
        gate.set()
        assert [record.value async for record in records] == [6]

    with Pipeline().stage(stages.double, workers=2) as pipeline:
        library.run(main)


@pytest.mark.parametrize("is_asynchronous", [True, False])
def test_items_are_read_no_further_than_the_windows(library, is_asynchronous):
    async def main():
        pulled = []
        numbers = itertools.count()
        items = counted(pulled, numbers) if is_asynchronous else (pulled.append(at) or at for at in numbers)
        records = pipeline.amap(items)
        assert pulled == []
        for taken in range(1, 30):
            assert (await records.__anext__()).value == 2 * (taken - 1)
            # The windows of both stages, the records that wait, and what is on its way.
            assert len(pulled) <= taken + 4 + 4 + 4 + 10
        await records.aclose()
        seen = len(pulled)
        assert [record.value async for record in pipeline.amap(range(3))] == [0, 2, 4]
        assert len(pulled) <= seen + 8

    pipeline = Pipeline(window=4).stage(stages.echo, workers=1).stage(stages.double, workers=1)
    with pipeline:
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
            async for record in pipeline.amap(asynchronous() if is_asynchronous else broken()):
                got.append(record.value)
        assert got == [2, 4]
        assert [record.value async for record in pipeline.amap([3])] == [6]

    with Pipeline().stage(stages.echo, workers=1).stage(stages.double, workers=1) as pipeline:
        library.run(main)


def test_items_that_are_done_have_no_records(library, tmp_path):
    async def main():
        for start, end in ((0, 200), (200, 300)):
            records = [record.index async for record in pipeline.amap(counted([], range(end)))]
            assert records == list(range(start, end))

    with Pipeline(journal=tmp_path / "run.journal", resume=True).stage(stages.double, workers=1) as pipeline:
        library.run(main)


def test_a_call_with_a_journal_ends_its_workers_also_if_the_input_fails(library, tmp_path):
    async def broken():
        yield 1
        raise LookupError("no more")

    async def main():
        assert [record.value async for record in pipeline.amap([1])] == [2]
        assert not pipeline._workers
        with pytest.raises(LookupError):
            async for _ in pipeline.amap(broken()):
                pass
        assert not pipeline._workers

    with Pipeline(journal=tmp_path / "run.journal", resume=True).stage(stages.double, workers=1) as pipeline:
        library.run(main)


@pytest.mark.parametrize("has_journal", [False, True])
def test_a_task_that_is_cancelled_gives_its_run_up(library, gates, tmp_path, has_journal):
    async def main():
        ended = []

        async def endless():
            try:
                for at in itertools.count():
                    yield gates.item(str(at))
            finally:
                ended.append(True)

        async def stream():
            async for record in pipeline.amap(endless(), keys=itertools.count()):
                assert record.value == "0"

        gates.open("0")
        assert await library.cancel_once(lambda: gates.await_begun("1"), stream)
        gates.open("1", "last", "later")
        for name in ("last", "later"):
            records = [record.value async for record in pipeline.amap([gates.item(name)], keys=[name])]
            assert records == [name]
            gc.collect()
        assert ended == [True]

    journal = {"journal": tmp_path / "run.journal", "resume": True} if has_journal else {}
    with Pipeline(window=2, **journal).stage(None, tasks.hold, workers=1) as pipeline:
        library.run(main)
    assert not gates.has_begun("3")


def test_a_task_that_is_cancelled_while_workers_start_leaves_them_to_the_next(library, gates):
    async def main():
        async def first():
            # Waits for the run before, whose hook is held.
            async for _ in pipeline.amap([gates.item("second")]):
                pass

        records = pipeline.imap([gates.item("held"), gates.item("more")])
        await library.in_thread(lambda: next(records).value)
        await library.in_thread(lambda: gates.await_begun("more"))
        records.close()
        waiting = pipeline._idle[0]

        def ready():
            assert wait_until(lambda: waiting not in pipeline._idle)
            gates.open("more", "second", "last")

        await library.cancel_once(ready, first)
        got = [record.value async for record in pipeline.amap([gates.item("last")])]
        assert got == ["last"]
        assert len(pipeline._workers) == len(pipeline._idle)

    gates.open("held")
    with Pipeline().stage(None, tasks.hold, workers=1) as pipeline:
        library.run(main)


def test_a_loop_that_is_left_leaves_the_pipeline_usable(library):
    async def main():
        async for record in pipeline.amap(counted([], itertools.count())):
            if record.index == 3:
                break
        return [record.value async for record in pipeline.amap([9])]

    with Pipeline().stage(stages.echo, workers=2) as pipeline:
        assert [library.run(main) for _ in range(3)] == [[9], [9], [9]]


def test_calls_at_the_same_time_have_workers_of_their_own(library):
    async def main():
        async def stream(start):
            return [record.value async for record in pipeline.amap(counted([], range(start, start + 20)))]

        got = await library.gather(lambda: stream(0), lambda: stream(100))
        assert got == [[2 * at for at in range(start, start + 20)] for start in (0, 100)]

    with Pipeline().stage(stages.double, workers=1) as pipeline:
        library.run(main)
        assert len(pipeline._workers) <= 2


def test_an_error_of_the_pipeline_is_raised(library):
    async def main():
        with pytest.raises(PoolError, match=r"^in infer: load failed on worker 0: RuntimeError: no weights"):
            async for _ in pipeline.amap(counted([], itertools.count())):
                pass

    with Pipeline().stage(stages.load_fails, stages.add, workers=1, name="infer") as pipeline:
        library.run(main)
        assert not pipeline._workers


def test_a_pipeline_that_is_closed_has_no_calls(library, gates):
    async def main():
        async def stream():
            with pytest.raises(Closed):
                async for _ in pipeline.amap([gates.item("held")]):
                    pass

        async def close():
            await library.in_thread(lambda: gates.await_begun("held"))
            await library.in_thread(pipeline.terminate)

        await library.gather(stream, close)
        with pytest.raises(Closed):
            pipeline.amap([1])

    with Pipeline().stage(None, tasks.hold, workers=1) as pipeline:
        library.run(main)


def test_a_fork_is_refused():
    with Pipeline().stage(stages.echo, workers=1) as pipeline:
        pipeline.map([1])
        child = os.fork()
        if child == 0:
            status = 1
            try:
                pipeline.amap([2])
            except Forked:
                status = 7
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_progress_counts_the_records(capsys):
    async def main():
        return [record.value async for record in pipeline.amap(range(3), progress="Doubling")]

    with Pipeline().stage(stages.double, workers=1) as pipeline:
        assert asyncio.run(main()) == [0, 2, 4]
    assert capsys.readouterr().err.startswith("Doubling: 3/3 items in")


def test_loops_leave_no_descriptor(library):
    async def main():
        return [record.value async for record in pipeline.amap(counted([], [2]))]

    with Pipeline().stage(stages.double, workers=1) as pipeline:
        library.run(main)
        before = descriptors()
        assert [library.run(main) for _ in range(10)] == [[4]] * 10
        assert descriptors() <= before
