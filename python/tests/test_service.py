"""A service: a bounded queue, deadlines, and an orderly end."""

import asyncio
import concurrent.futures
import os
import threading

import pytest
import tasks
from conftest import PATIENCE, wait_until
from gates import Gates

from gangline import Batch, Closed, DeadlineExceeded, Full, JobFailed, Pool, PoolError, Service


def note_start(context):
    with open(os.environ["STARTED"], "a") as file:
        file.write(f"{context.worker}\n")


@pytest.fixture
def gates(tmp_path):
    return Gates(tmp_path)


@pytest.mark.parametrize("backend", ["processes", "threads"])
def test_calls_are_answered(backend):
    async def main():
        return await asyncio.gather(*(service.acall(at) for at in (0, 1, 3)))

    with Service(None, tasks.fail_on, workers=2, backend=backend) as service:
        assert service(3) == 3
        assert service.submit(4).result() == 4
        assert service.try_submit(6).result() == 6
        assert asyncio.run(main()) == [0, 1, 3]
        with pytest.raises(JobFailed, match="ValueError: bad 2"):
            service(2)
        assert "7 items in" in service.report()


def test_a_full_queue_refuses(gates):
    with Service(None, tasks.hold, workers=1, queue=2) as service:
        open_ones = [service.try_submit(gates.item(name)) for name in ("first", "second")]
        for _ in range(3):
            with pytest.raises(Full, match="the queue is full") as full:
                service.try_submit(gates.item("refused"))
            assert isinstance(full.value, PoolError)
        waiting = service.submit(gates.item("waiting"))
        gates.open("first", "second", "waiting", "later")
        assert [future.result() for future in (*open_ones, waiting)] == ["first", "second", "waiting"]
        assert service.try_submit(gates.item("later")).result() == "later"
    assert not gates.has_begun("refused")


def test_a_service_that_starts_at_once_has_its_queue(gates, tmp_path, monkeypatch):
    monkeypatch.setenv("STARTED", str(tmp_path / "started"))
    with Service(note_start, tasks.hold, workers=1, queue=1, preload=True) as service:
        assert wait_until((tmp_path / "started").exists)
        first = service.try_submit(gates.item("first"))
        with pytest.raises(Full):
            service.try_submit(gates.item("refused"))
        gates.open("first")
        assert first.result() == "first"
    with pytest.raises(ValueError, match="preload=True cannot be used with journal="):
        Pool(None, tasks.echo, preload=True, journal=tmp_path / "run.journal")


def test_a_call_that_waits_for_its_place_is_cancelled(gates):
    with Service(None, tasks.hold, workers=1, queue=1) as service:
        first = service.submit(gates.item("first"))
        waiting, last = service.submit(gates.item("waiting")), service.submit(gates.item("last"))
        assert waiting.cancel()
        gates.open("first", "last")
        assert (first.result(), last.result()) == ("first", "last")
    assert not gates.has_begun("waiting")


def test_a_deadline_ends_a_call_in_work_and_one_that_waits(gates):
    with Service(None, tasks.hold, workers=1, queue=2) as service:
        held = service.submit(gates.item("held"))
        gates.await_begun("held")
        soon = service.with_deadline("50ms")
        for call in (soon, lambda value: soon.submit(value).result()):
            with pytest.raises(DeadlineExceeded, match="the call was not answered within 50ms"):
                call(gates.item("late"))
        waiting = [soon.submit(gates.item("late")) for _ in range(4)]
        for future in waiting:
            assert isinstance(future.exception(PATIENCE), DeadlineExceeded)
        gates.open("held", "next")
        assert held.result() == "held"
        assert service.with_deadline(PATIENCE)(gates.item("next")) == "next"
    assert not gates.has_begun("late")


def test_a_deadline_of_a_task(gates):
    async def main():
        with pytest.raises(DeadlineExceeded):
            await service.with_deadline(0.05).acall(gates.item("held"))

    with Service(None, tasks.hold, workers=1) as service:
        asyncio.run(main())
        gates.open("held", "next")
        assert service(gates.item("next")) == "next"


@pytest.mark.parametrize("limit", ["soon", "", "-1s", "+1s", "1000 years"])
def test_a_time_that_is_none_is_refused(limit):
    with Service(None, tasks.echo, workers=1) as service:
        with pytest.raises(PoolError, match="for limit=: write a time"):
            service.with_deadline(limit)
        with pytest.raises(PoolError, match="for timeout=: write a time"):
            service.drain(limit)
        with pytest.raises(ValueError, match="at least 0 seconds"):
            service.with_deadline(-1)
        assert service(1) == 1


def test_a_stream_goes_on_beside_calls():
    with Service(None, tasks.square, workers=2) as service:
        records = service.stream(range(300), keys=range(300))
        got = []
        for record in records:
            got.append((record.key, record.value))
            if record.index % 50 == 0:
                assert service(7) == 49
    assert got == [(at, at * at) for at in range(300)]


def test_a_drain_waits_for_open_calls_and_refuses_others(gates):
    with Service(None, tasks.hold, workers=1) as service:
        futures = [service.submit(gates.item(name)) for name in ("first", "second")]
        gates.await_begun("first")
        drained = []
        draining = threading.Thread(target=lambda: drained.append(service.drain("1m")))
        draining.start()
        gates.open("first", "second")
        draining.join()
        assert drained == [True]
        assert [future.result() for future in futures] == ["first", "second"]
        for call in (service, service.submit, service.try_submit, service.stream):
            with pytest.raises(Closed):
                call(gates.item("late"))


def test_a_drain_that_takes_too_long_ends_open_calls(gates):
    with Service(None, tasks.hold, workers=1) as service:
        futures = [service.submit(gates.item(name)) for name in ("first", "second")]
        gates.await_begun("first")
        assert not service.drain("10ms")
        for future in futures:
            assert isinstance(future.exception(PATIENCE), Closed)
        gates.open("first")
    assert not gates.has_begun("second")


def test_a_service_that_was_never_used_drains_and_ends():
    with Service(None, tasks.echo, workers=1) as service:
        assert service.drain("1s")
        with pytest.raises(Closed):
            service(1)


def test_open_calls_of_a_service_that_is_closed_have_an_error(gates):
    service = Service(None, tasks.hold, workers=1)
    held = service.submit(gates.item("held"))
    gates.await_begun("held")
    closing = threading.Thread(target=service.close)
    closing.start()
    assert isinstance(held.exception(PATIENCE), Closed)
    gates.open("held")
    closing.join()
    service.terminate()


def test_a_handle_with_a_deadline_is_the_same_service():
    service = Service(tasks.counter, tasks.count, workers=1)
    with service.with_deadline("1m") as handle:
        assert [service(0)[0], handle(0)[0], service(0)[0]] == [1, 2, 3]
    with pytest.raises(Closed):
        service(0)


@pytest.mark.parametrize("kind", [Pool, Service])
def test_lists_are_bounded_by_their_latency(kind):
    with kind(None, tasks.squares, workers=1, batch=Batch.auto(16, latency="1s")) as pool:
        futures = [pool.submit(at) for at in range(500)]
        concurrent.futures.wait(futures)
    assert [future.result() for future in futures] == [at * at for at in range(500)]


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"queue": 0}, ValueError, "queue must be at least 1, got 0"),
        ({"queue": 4, "batch": 8}, ValueError, "queue must have room for a list, which has up to 8 inputs, got 4"),
        ({"journal": "run.journal"}, TypeError, "a service has no journal: that is an option of a pool"),
        ({"window": 8}, TypeError, "a service has no window"),
        ({"batch": Batch.auto(0)}, ValueError, "batch must be at least 1, got 0"),
        ({"color": "red"}, TypeError, "color"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_at_once(options, error, says):
    with pytest.raises(error) as raised:
        Service(None, tasks.echo, workers=1, **options)
    assert says in str(raised.value)


@pytest.mark.parametrize("latency", ["soon", 0])
def test_a_latency_that_makes_no_sense_is_refused(latency):
    batch = Batch.auto(latency=latency)
    with Service(None, tasks.echo_all, workers=1, batch=batch) as service, pytest.raises(PoolError, match="latency"):
        service(1)
