"""A pool as an executor of the standard library."""

import asyncio
import concurrent.futures
import functools
import gc
import operator
import os
import signal
import threading
import weakref

import pytest
import tasks
from conftest import PATIENCE, wait_until
from gates import Gates
from test_calls import PREAMBLE

from gangline import Closed, Executor, JobFailed


@pytest.fixture
def gates(tmp_path):
    return Gates(tmp_path)


@pytest.mark.parametrize("backend", ["processes", "threads"])
def test_functions_are_called_with_their_arguments(backend):
    offset = 5
    with Executor(2, backend=backend) as executor:
        assert isinstance(executor, concurrent.futures.Executor)
        assert executor.submit(sorted, [3, 1, 2], reverse=True).result() == [3, 2, 1]
        assert executor.submit(lambda x, y=1: x + y + offset, 1, y=2).result() == 8
        assert executor.submit(functools.partial(operator.add, 1), 2).result() == 3
        assert executor.submit(dict, self=1, fn=2).result() == {"self": 1, "fn": 2}
        assert list(executor.map(pow, range(100), range(100))) == [x**x for x in range(100)]


def test_an_exception_is_that_of_the_future():
    with Executor(workers=1) as executor:
        futures = [executor.submit(int, "x"), executor.submit(threading.Lock), executor.submit(print, threading.Lock())]
        says = ["ValueError: invalid literal", "cannot pickle", "cannot pickle"]
        for future, text in zip(futures, says):
            with pytest.raises(JobFailed, match=text):
                future.result()
            assert future.exception().record is future.record
        with pytest.raises(JobFailed, match="invalid literal"):
            list(executor.map(int, ["1", "x", "2"]))
        assert executor.submit(int, "7").result() == 7


def test_futures_are_waited_for_as_those_of_the_standard_library(gates):
    with Executor(2) as executor:
        slow = executor.submit(tasks.hold, None, gates.item("slow"))
        quick = executor.submit(abs, -3)
        first = concurrent.futures.wait([slow, quick], return_when=concurrent.futures.FIRST_COMPLETED)
        assert first.done == {quick}
        with pytest.raises(concurrent.futures.TimeoutError):
            slow.result(timeout=0)
        gates.open("slow")
        assert {future.result() for future in concurrent.futures.as_completed([slow, quick])} == {"slow", 3}


def test_a_call_that_no_worker_was_given_is_cancelled(gates):
    names = [str(at) for at in range(8)]
    with Executor(1) as executor:
        futures = [executor.submit(tasks.hold, None, gates.item(name)) for name in names]
        gates.await_begun("0")
        assert futures[5].cancel() and futures[5].cancelled()
        assert not futures[0].cancel()
        executor.shutdown(wait=False, cancel_futures=True)
        with pytest.raises(Closed, match="after shutdown"):
            executor.submit(abs, 1)
        assert [future.cancelled() for future in futures] == [False] * 2 + [True] * 6
        gates.open(*names)
    assert [future.result() for future in futures[:2]] == ["0", "1"]
    assert not any(gates.has_begun(name) for name in names[2:])


@pytest.mark.parametrize("wait", [True, False])
def test_open_calls_are_done_before_the_workers_end(gates, wait):
    executor = Executor(1)
    futures = [executor.submit(tasks.hold, None, gates.item(str(at))) for at in range(20)]
    ending = threading.Thread(target=executor.shutdown, kwargs={"wait": wait})
    ending.start()
    if not wait:
        ending.join()
    assert not futures[0].done()
    gates.open(*map(str, range(20)))
    assert [future.result(PATIENCE) for future in futures] == [str(at) for at in range(20)]
    ending.join()
    executor.shutdown()
    executor.shutdown(cancel_futures=True)


def test_an_executor_that_is_dropped_does_its_calls(gates):
    executor = Executor(1)
    future = executor.submit(tasks.hold, None, gates.item("held"))
    dropped = weakref.ref(executor)
    del executor
    gc.collect()
    gates.open("held")
    assert future.result(PATIENCE) == "held"
    # Also while its futures are kept.
    assert wait_until(lambda: dropped() is None)


@pytest.mark.parametrize(
    ("last", "code", "done"), [("", 0, 40), ("executor.shutdown(wait=False)", 0, 40), ("raise LookupError", 1, None)]
)
def test_calls_are_done_at_the_end_of_a_program(script, tmp_path, last, code, done):
    process = script(
        PREAMBLE
        + f"""
from pathlib import Path
executor = gangline.Executor(2)
for at in range(40):
    executor.submit(Path({str(tmp_path)!r}, f"{{at}}.done").touch)
{last}
"""
    )
    process.communicate(timeout=PATIENCE)
    assert process.returncode == code
    assert done is None or len(list(tmp_path.glob("*.done"))) == done


def test_ctrl_c_leaves_no_call_in_work(script, tmp_path):
    process = script(
        PREAMBLE
        + f"""
with gangline.Executor(1) as executor:
    executor.submit(tasks.hold, None, ({str(tmp_path)!r}, "held")).result()
"""
    )
    assert wait_until((tmp_path / "held.begun").exists)
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGINT
    assert errors.rstrip().endswith("KeyboardInterrupt")


def test_a_loop_runs_functions_in_it(gates):
    async def main():
        loop = asyncio.get_running_loop()
        results = await asyncio.gather(*(loop.run_in_executor(executor, pow, at, 2) for at in range(50)))
        assert results == [at * at for at in range(50)]
        held = [loop.run_in_executor(executor, tasks.hold, None, gates.item(str(at))) for at in range(4)]
        await loop.run_in_executor(None, gates.await_begun, "0")
        held[3].cancel()
        with pytest.raises(asyncio.CancelledError):
            await held[3]
        gates.open("0", "1", "2")
        assert await asyncio.gather(*held[:3]) == ["0", "1", "2"]
        with pytest.raises(JobFailed, match="invalid literal"):
            await loop.run_in_executor(executor, int, "x")

    with Executor(1) as executor:
        asyncio.run(main())
    assert not gates.has_begun("3")


def test_dask_takes_it():
    dask = pytest.importorskip("dask")
    with Executor(2, backend="threads") as executor, dask.config.set(pool=executor):
        total = dask.delayed(sum)([dask.delayed(operator.mul)(at, at) for at in range(20)])
        assert total.compute(scheduler="threads") == sum(at * at for at in range(20))


def test_a_fork_does_not_wait_for_its_parents_calls(script, tmp_path):
    process = script(
        PREAMBLE
        + f"""
executor = gangline.Executor(1)
future = executor.submit(tasks.hold, None, ({str(tmp_path)!r}, "held"))
child = os.fork()
if child == 0:
    executor.shutdown()
    sys.exit(7)
assert os.waitpid(child, 0)[1] == 7 << 8
open({str(tmp_path / "held.go")!r}, "w").close()
print(future.result())
"""
    )
    assert process.communicate(timeout=PATIENCE)[0] == "held\n"


def test_options_are_those_of_a_pool(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with Executor(gpus=[2], retries=1) as executor:
        assert executor.submit(tasks.environment, None, "CUDA_VISIBLE_DEVICES").result() == "2"
        future = executor.submit(int, "x")
        concurrent.futures.wait([future])
        assert future.record.attempts == 2
    with pytest.raises(ValueError, match="workers must be at least 1"):
        Executor(0)
    with pytest.raises(TypeError, match="color"):
        Executor(1, color="red")


def test_a_worker_that_is_killed_does_no_harm_to_others():
    with Executor(2) as executor:
        futures = [executor.submit(tasks.kill_worker, None, at) for at in range(6)]
        concurrent.futures.wait(futures)
    assert [future.exception() is None for future in futures] == [True, False, True, True, True, True]
    assert wait_until(lambda: all(future.done() for future in futures))
