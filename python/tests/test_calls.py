"""Calls of a pool: one input at a time, from threads, with futures."""

import asyncio
import concurrent.futures
import gc
import os
import signal
import threading

import pytest
import tasks
from conftest import HERE, PATIENCE, wait_until
from gates import Gates

from gangline import Closed, Forked, JobFailed, NoWorkers, Pool, PoolError

PREAMBLE = f"""
import os, signal, sys, threading, time
sys.path.insert(0, {str(HERE)!r})
import tasks, gangline
"""


@pytest.fixture
def gates(tmp_path):
    return Gates(tmp_path)


def test_a_call_returns_the_output():
    with Pool(None, tasks.square, workers=2) as pool:
        assert [pool(x) for x in range(5)] == [0, 1, 4, 9, 16]
        assert "5 items in" in pool.report()


@pytest.mark.parametrize("backend", ["processes", "threads"])
def test_a_call_that_fails_raises_with_its_record(backend):
    with Pool(None, tasks.fail_on, workers=1, retries=1, key=str, backend=backend) as pool:
        with pytest.raises(JobFailed, match=r"item 0 \(2\) failed: ValueError: bad 2") as failed:
            pool(2)
        record = failed.value.record
        assert (record.key, record.value, record.attempts, record.worker) == ("2", None, 2, 0)
        assert "tasks.py" in record.error
        assert pool(3) == 3


@pytest.mark.parametrize(("value", "says"), [(threading.Lock(), "cannot pickle"), (lambda: gc, None)])
def test_a_value_that_cannot_be_sent_fails_alone(value, says):
    with Pool(None, tasks.echo, workers=1) as pool:
        if says is None:
            assert callable(pool(value))
        else:
            with pytest.raises(JobFailed, match=says) as failed:
                pool(value)
            assert failed.value.record.attempts == 0
        assert pool(1) == 1


def test_an_output_that_cannot_be_rebuilt_fails_its_call():
    with Pool(None, tasks.not_loadable, workers=1) as pool, pytest.raises(JobFailed, match="cannot be rebuilt"):
        pool(1)


def test_a_worker_that_dies_fails_its_call():
    with Pool(None, tasks.kill_worker, workers=1) as pool:
        with pytest.raises(JobFailed, match="SIGKILL"):
            pool(1)
        assert pool(2) == 2


def test_calls_and_streams_of_several_threads_share_a_pool():
    got = {}

    def call(start):
        got[start] = [pool(x) for x in range(start, start + 30)]

    def stream(start):
        got[start] = pool.map(range(start, start + 200))

    def submit(start):
        futures = [pool.submit(x) for x in range(start, start + 100)]
        got[start] = [future.result() for future in futures]

    with Pool(None, tasks.square, workers=2) as pool:
        threads = [
            threading.Thread(target=target, args=(1000 * at,))
            for at, target in enumerate([call, call, stream, stream, submit, submit])
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert got == {start: [x * x for x in range(start, start + len(values))] for start, values in got.items()}
    assert len(got) == 6


def test_a_list_has_inputs_of_several_callers(gates):
    with Pool(None, tasks.hold_list, workers=1, batch=8) as pool:
        first = pool.submit(gates.item("first"))
        gates.await_begun("first")
        others = [pool.submit(gates.item(str(at))) for at in range(5)]
        gates.open("first", *map(str, range(5)))
        assert first.result() == ("first", 1)
        assert {future.result() for future in others} == {(str(at), 5) for at in range(5)}


def test_a_future_has_the_record():
    with Pool(None, tasks.fail_on, workers=2, key=str) as pool:
        futures = [pool.submit(x) for x in range(3)]
        done, _ = concurrent.futures.wait(futures)
        assert done == set(futures)
        assert [future.record.value for future in futures] == [0, 1, None]
        assert [future.record.key for future in futures] == ["0", "1", "2"]
        assert isinstance(futures[2].exception(), JobFailed)
        assert futures[2].exception().record is futures[2].record
        assert isinstance(futures[0], concurrent.futures.Future)


def test_futures_are_done_in_the_order_of_completion(gates):
    with Pool(None, tasks.hold, workers=2) as pool:
        slow, quick = pool.submit(gates.item("slow")), pool.submit(gates.item("quick"))
        gates.open("quick")
        done = concurrent.futures.as_completed([slow, quick], timeout=PATIENCE)
        assert next(done) is quick
        gates.open("slow")
        assert next(done) is slow


def test_a_future_is_cancelled_while_it_waits(gates):
    with Pool(None, tasks.hold, workers=1) as pool:
        first = pool.submit(gates.item("first"))
        gates.await_begun("first")
        given_up, last = pool.submit(gates.item("given up")), pool.submit(gates.item("last"))
        called = []
        given_up.add_done_callback(called.append)
        assert given_up.cancel() and given_up.cancel()
        assert given_up.cancelled() and called == [given_up]
        assert given_up in concurrent.futures.wait([given_up], timeout=PATIENCE).done
        with pytest.raises(concurrent.futures.CancelledError):
            given_up.result()
        gates.open("first", "last")
        assert (first.result(), last.result()) == ("first", "last")
        assert not first.cancel()
    assert not gates.has_begun("given up")


def test_a_future_that_is_cancelled_in_work_is_given_up(gates):
    with Pool(None, tasks.hold, workers=1) as pool:
        first = pool.submit(gates.item("first"))
        gates.await_begun("first")
        assert first.cancel()
        gates.open("first", "next")
        assert pool(gates.item("next")) == "next"
    assert first.cancelled() and first.record is None


def test_a_callback_may_call_the_pool():
    results = []
    with Pool(None, tasks.square, workers=1) as pool:
        called = threading.Event()

        def call(future):
            results.append(pool(future.result()))
            pool.submit(7).add_done_callback(lambda last: (results.append(last.result()), called.set()))

        pool.submit(3).add_done_callback(call)
        assert called.wait(PATIENCE)
    assert results == [81, 49]


def test_a_callback_may_wait_for_other_futures():
    results = []
    called = threading.Event()

    def call(future):
        futures = [pool.submit(x) for pool in (first, second) for x in range(20)]
        results.extend(each.result() for each in futures)
        with pytest.raises(concurrent.futures.TimeoutError):
            first.submit(1.5).result(timeout=0)
        called.set()

    with Pool(None, tasks.square, workers=1) as first, Pool(None, tasks.square, workers=1) as second:
        several = [first.submit(x) for x in range(20)]
        several[5].add_done_callback(call)
        assert called.wait(PATIENCE)
        assert [future.result() for future in several] == [x * x for x in range(20)]
    assert results == [x * x for x in range(20)] * 2


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt])
def test_a_callback_that_raises_ends_nothing(error):
    def call(_):
        raise error

    with Pool(None, tasks.square, workers=1) as pool:
        future = pool.submit(2)
        future.add_done_callback(call)
        concurrent.futures.wait([future])
        assert pool.submit(3).result(PATIENCE) == 9


@pytest.mark.parametrize("way", ["close", "terminate", "drop"])
@pytest.mark.parametrize("backend", ["processes", "threads"])
def test_open_futures_of_a_pool_that_ends_have_an_error(gates, way, backend):
    pools = [Pool(None, tasks.hold, workers=1, backend=backend)]
    futures = [pools[0].submit(gates.item(name)) for name in ("first", "second")]
    gates.await_begun("first")

    def end():
        pool = pools.pop()
        if way != "drop":
            getattr(pool, way)()

    ending = threading.Thread(target=end)
    ending.start()
    for future in futures:
        assert isinstance(future.exception(PATIENCE), Closed)
    gates.open("first")
    ending.join()
    assert not gates.has_begun("second")


def test_a_closed_pool_takes_no_calls():
    pool = Pool(None, tasks.echo, workers=1)
    pool.close()
    for call in (pool, pool.submit, pool.amap):
        with pytest.raises(Closed, match="the pool is closed"):
            call([1])


def test_a_pool_with_a_journal_takes_no_calls(tmp_path):
    with Pool(None, tasks.echo, workers=1, journal=tmp_path / "run.journal") as pool:
        for call in (pool, pool.submit, pool.amap):
            with pytest.raises(PoolError, match="a pool with a journal has only `imap` and `map`"):
                call([1])
        assert pool.map([1]) == [1]


def test_without_workers_each_call_says_why_and_the_next_starts_others(tmp_path, monkeypatch):
    monkeypatch.setenv("LOAD_FILE", str(tmp_path / "loaded"))
    with Pool(tasks.load_fails_once, tasks.echo, workers=1) as pool:
        with pytest.raises(NoWorkers, match="load failed on worker 0: RuntimeError: no weights"):
            pool.submit(1).result()
        assert pool(2) == 2


def test_options_that_make_no_workers_are_an_error_of_the_call():
    with Pool(None, tasks.echo, devices="nonsense") as pool:
        for call in (pool, pool.submit):
            with pytest.raises(PoolError, match="nonsense"):
                call(1)


def test_threads_share_the_objects_of_calls():
    given = threading.Lock()
    with Pool(None, tasks.echo, workers=2, backend="threads") as pool:
        assert pool(given) is given
        assert pool.submit(given).result() is given


@pytest.mark.parametrize(
    "wait",
    [
        lambda pool, x: pool(x),
        lambda pool, x: pool.submit(x).result(),
        lambda pool, x: pool.submit(x).exception(),
        lambda pool, x: pool.map([x]),
        lambda pool, x: next(pool.imap([x])),
    ],
    ids=["call", "result", "exception", "map", "imap"],
)
def test_a_task_on_a_thread_does_not_wait_for_its_own_pool(wait):
    def work(_, x):
        return wait(pool, x - 1) if x > 0 else x

    with Pool(None, work, workers=1, backend="threads") as pool:
        with pytest.raises(JobFailed, match="a task on a thread of a pool must not wait for this pool"):
            pool(1)
        assert pool(-1) == -1


def test_descriptors_are_not_lost():
    with Pool(None, tasks.echo, workers=1) as pool:
        pool.submit(1).result()
        before = len(os.listdir("/proc/self/fd"))
        for at in range(50):
            assert (pool(at), pool.submit(at).result()) == (at, at)
        assert len(os.listdir("/proc/self/fd")) == before


def test_a_fork_is_told_to_make_a_pool_of_its_own(script):
    process = script(
        PREAMBLE
        + """
pool = gangline.Pool(None, tasks.sleep, workers=1)
assert pool(0) == 0
future = pool.submit(1)
child = os.fork()
if child == 0:
    seen = []
    for ask in (lambda: pool(0), lambda: pool.submit(0), future.result, future.exception):
        try:
            ask()
        except gangline.Forked as error:
            seen.append(str(error))
    assert not future.cancel() and len(seen) == 4 and "make one in this process" in seen[0], seen
    with gangline.Pool(None, tasks.square, workers=1) as own:
        assert own.submit(3).result() == 9 == own(3)
    os._exit(7)
assert os.waitpid(child, 0)[1] == 7 << 8
assert future.result() == 1
pool.close()
print("ok")
"""
    )
    assert process.communicate(timeout=PATIENCE)[0] == "ok\n"
    assert issubclass(Forked, PoolError)


def test_ctrl_c_interrupts_a_call(script, tmp_path):
    process = script(
        PREAMBLE
        + f"""
with gangline.Pool(None, tasks.hold, workers=1) as pool:
    pool(({str(tmp_path)!r}, "held"))
"""
    )
    assert wait_until((tmp_path / "held.begun").exists)
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGINT
    assert errors.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.parametrize(
    ("last", "code"), [("", 0), ("sys.exit(3)", 3), ("raise LookupError", 1), ("pool.terminate()", 0)]
)
def test_a_program_ends_with_open_futures(script, last, code):
    process = script(
        PREAMBLE
        + f"""
pool = gangline.Pool(None, tasks.sleep, workers=2)
futures = [pool.submit(0.01) for _ in range(500)]
futures[0].result()
{last}
"""
    )
    process.communicate(timeout=PATIENCE)
    assert process.returncode == code


class Closing:
    """Closes the pool while it is pickled: after the call was accepted, and before it begins."""

    def __init__(self, pool):
        self.pool = pool

    def __reduce__(self):
        self.pool.close()
        return int, ()


def test_a_call_that_begins_after_the_close_is_answered_at_once():
    async def call(pool):
        await pool.acall(Closing(pool))

    ways = [
        lambda pool: pool(Closing(pool)),
        lambda pool: pool.submit(Closing(pool)).result(PATIENCE),
        lambda pool: asyncio.run(asyncio.wait_for(call(pool), PATIENCE)),
    ]
    for way in ways:
        pool = Pool(None, tasks.echo, workers=1)
        assert pool(1) == 1
        with pytest.raises(Closed, match="the pool was closed"):
            way(pool)
