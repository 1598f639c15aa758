"""Lists whose outputs are made by `finish`, beside the `work` of the next list."""

import os
import threading

import numpy as np
import pytest

from gangline import JobFailed, Pipeline, Pool, Service


class Handle:
    """What `work` leaves to be copied."""

    def __init__(self, values):
        self.values = values


def launch(state, values):
    return Handle(values)


def copy_back(state, handle):
    return [check(value) for value in handle.values]


def check(value):
    if value == "wrong":
        raise ValueError("this cannot be copied")
    if value == "dead":
        os._exit(3)
    if value == "printed":
        print("copied")
    return value if isinstance(value, str) else 2 * value


def new_counter(context):
    return {"works": False, "beside": 0}


def launch_slowly(state, values):
    state["works"] = True
    total = sum(range(20_000))
    state["works"] = False
    return total, values


def count_beside(state, handle):
    _, values = handle
    state["beside"] += state["works"] or threading.current_thread() is not threading.main_thread()
    return [state["beside"]] * len(values)


@pytest.mark.parametrize("backend", ["processes", "threads"])
@pytest.mark.parametrize("batch", [8, "auto"])
def test_outputs_are_those_of_finish(backend, batch):
    with Pool(None, launch, finish=copy_back, batch=batch, workers=2, backend=backend) as pool:
        for count in (0, 1, 7, 1_000):
            assert pool.map(range(count)) == [2 * value for value in range(count)]


@pytest.mark.parametrize("backend", ["processes", "threads"])
def test_single_outputs_are_finished_too(backend):
    with Pool(None, launch, finish=lambda state, handle: handle.values + 1, workers=2, backend=backend) as pool:
        assert pool.map(range(30)) == list(range(1, 31))
        assert pool(6) == 7


def test_lists_are_finished_beside_work():
    with Pool(new_counter, launch_slowly, finish=count_beside, batch=4, workers=1) as pool:
        assert pool.map(range(1_600))[-1] > 0


def test_an_error_of_finish_is_that_of_its_item():
    values = [*range(100), "wrong", *range(100)]
    with Pool(None, launch, finish=copy_back, batch=8, workers=2) as pool:
        records = list(pool.imap(values))
    assert [record.index for record in records if not record.ok] == [100]
    assert "ValueError: this cannot be copied" in records[100].error
    assert [record.value for record in records if record.ok] == 2 * [2 * value for value in range(100)]


def test_a_process_that_ends_in_finish_costs_its_item_alone():
    values = [*range(100), "dead", *range(100)]
    with Pool(None, launch, finish=copy_back, batch=4, workers=1) as pool:
        records = list(pool.imap(values))
    assert [record.index for record in records if not record.ok] == [100]
    assert "status 3" in records[100].error


def short_of_memory(state, handle):
    if len(handle.values) > 2:
        raise MemoryError("no room for the copies")
    return handle.values


def test_a_lack_of_memory_in_finish_divides_the_list():
    with Pool(None, launch, finish=short_of_memory, batch=8, workers=1) as pool:
        assert pool.map(range(64)) == list(range(64))


@pytest.mark.parametrize(
    ("finish", "text"),
    [
        (lambda state, handle: 7, "with batch, finish returns a list of outputs, got int"),
        (lambda state, handle: handle.values[1:], "finish returned 0 outputs for 1 inputs"),
        (lambda state, handle: [threading.Lock()] * len(handle.values), "cannot pickle"),
    ],
)
def test_what_finish_returns_is_checked(finish, text):
    with Pool(None, launch, finish=finish, batch=4, workers=1) as pool, pytest.raises(JobFailed, match=text):
        pool.map(range(4))


def test_an_output_may_be_an_exception():
    def some(state, handle):
        return [ValueError("odd") if value % 2 else value for value in handle.values]

    with Pool(None, launch, finish=some, batch=4, workers=1) as pool:
        assert [record.ok for record in pool.imap(range(8))] == 4 * [True, False]


def test_prints_of_finish_appear(capfd):
    with Pool(None, launch, finish=copy_back, batch=4, workers=1) as pool:
        pool.map(["printed"])
    assert "copied" in capfd.readouterr().err


def test_large_outputs_are_finished():
    def arrays(state, handle):
        return [np.full(30_000, value) for value in handle.values]

    with Pool(None, launch, finish=arrays, batch=8, workers=2) as pool:
        for value, array in enumerate(pool.map(range(200))):
            assert (array == value).all()


def test_stages_and_services_finish():
    pipeline = (
        Pipeline()
        .stage(Handle, finish=lambda handle: handle.values, batch=4, workers=1)
        .stage(new_counter, launch, finish=copy_back, batch=3, workers=1, backend="threads")
        .stage(lambda value: value + 1, finish=str, workers=1)
    )
    with pipeline:
        assert pipeline.map(range(50)) == [str(2 * value + 1) for value in range(50)]
    with Service(None, launch, finish=copy_back, batch=4, workers=1) as service:
        assert [call.result() for call in [service.submit(value) for value in range(40)]] == list(range(0, 80, 2))


def test_finish_must_be_a_function():
    with pytest.raises(TypeError, match="finish must be a function, got 3"):
        Pool(None, launch, finish=3, batch=4)
    with pytest.raises(TypeError, match="finish must be a function, got 3"):
        Pipeline().stage(launch, finish=3)
