import threading

import numpy as np
import pytest
import tasks
from conftest import wait_until

import gangline
from gangline.compat import CfgNode, OrderedRunner


class Squares(gangline.Runner[int, int, list]):
    def producer_work(self, context, state, input):
        return input * input

    def consumer_init(self, context):
        assert (context.item, context.key, context.record) == (None, None, None)
        return []

    def consumer_work(self, context, state, output):
        state.append((context.item, context.key, output))

    def consumer_skipped(self, context, state, error):
        state.append((context.item, context.key, str(error).partition("\n")[0]))

    def consumer_end(self, context, state):
        assert context.item is None
        return state


class WithState(Squares):
    """Says where the state was made."""

    def __init__(self, step):
        self.step = step

    def producer_init(self, context):
        return [context.worker, 0]

    def producer_work(self, context, state, input):
        assert context.worker == state[0]
        state[1] += self.step
        return state[1]


def test_a_run_returns_what_the_consumer_returns():
    assert gangline.run(Squares(), [1, 2, 3], workers=2) == [(0, None, 1), (1, None, 4), (2, None, 9)]
    assert gangline.run(Squares(), iter([5]), keys=["five"], workers=1) == [(0, "five", 25)]
    assert gangline.run(Squares(), [], workers=1) == []


@pytest.mark.parametrize("backend", ["processes", "threads"])
def test_a_producer_keeps_its_state(backend):
    runner = WithState(2)
    counted = gangline.run(runner, range(5), workers=1, backend=backend)
    assert [output for _, _, output in counted] == [2, 4, 6, 8, 10]


class Failing(Squares):
    def producer_work(self, context, state, input):
        if input == 2:
            raise ValueError("two")
        return input


@pytest.mark.parametrize("batch", [None, 2, 8])
def test_a_failed_item_ends_the_run_or_is_skipped(batch):
    taken = []

    class Kept(Failing):
        def consumer_work(self, context, state, output):
            taken.append(output)

        def consumer_end(self, context, state):
            raise AssertionError("the run has failed")

    with pytest.raises(gangline.JobFailed, match="two"):
        gangline.run(Kept(), [1, 2, 3], workers=1, batch=batch)
    assert taken == [1]
    skipped = gangline.run(Failing(), [1, 2, 3], keys="abc", workers=1, batch=batch, on_error="skip")
    assert [skipped[0], skipped[2]] == [(0, "a", 1), (2, "c", 3)]
    assert skipped[1][:2] == (1, "b")
    assert "ValueError: two" in skipped[1][2]


class Sums(Squares):
    def producer_work_batch(self, context, state, inputs):
        return np.cumsum(inputs)


def test_a_list_has_a_hook_of_its_own():
    assert gangline.run(Sums(), [1, 2, 3, 4], workers=1, batch=4, batch_wait="1m") == [
        (0, None, 1),
        (1, None, 3),
        (2, None, 6),
        (3, None, 10),
    ]


class Ending(gangline.Runner):
    def __init__(self, path):
        self.path = path

    def producer_work(self, context, state, input):
        return input

    def producer_end(self, context, state):
        with open(self.path, "a") as file:
            file.write(f"{context.worker}\n")


def test_each_producer_ends_in_order(tmp_path):
    assert gangline.run(Ending(tmp_path / "ended"), range(3), workers=2) is None
    assert sorted((tmp_path / "ended").read_text().split()) == ["0", "1"]


def test_a_consumer_is_on_the_caller_and_may_stop_the_run():
    pulled = []

    class First(Squares):
        def consumer_work(self, context, state, output):
            assert threading.current_thread() is threading.main_thread()
            super().consumer_work(context, state, output)
            if output >= 4:
                context.stop()

    def items():
        for number in range(1_000_000):
            pulled.append(number)
            yield number

    assert gangline.run(First(), items(), workers=1, window=4) == [(0, None, 0), (1, None, 1), (2, None, 4)]
    assert len(pulled) < 20


@pytest.mark.parametrize("hook", ["consumer_init", "consumer_work", "consumer_end"])
def test_an_exception_of_a_consumer_ends_the_run(hook):
    def fail(*_):
        raise KeyError("full")

    with pytest.raises(KeyError, match="full"):
        gangline.run(type("Full", (Squares,), {hook: fail})(), range(100), workers=1)


class Full(OrderedRunner):
    @staticmethod
    def consumer_work(cfg, data):
        raise KeyError("full")


def feeders():
    return [thread for thread in threading.enumerate() if thread.name == "gangline-feeder"]


def test_nothing_more_is_read_once_a_consumer_has_failed():
    runner = Full(1)
    # The traceback holds what the call held.
    with pytest.raises(KeyError) as caught:
        runner(iter(range(1_000_000)))
    assert wait_until(lambda: not feeders()), caught
    runner.close()


class Unprepared(Squares):
    def producer_init(self, context):
        if context.worker == 1:
            raise OSError("no weights")


def test_what_is_missing_or_wrong_is_said():
    with pytest.raises(gangline.PoolError, match="no weights"):
        gangline.run(Unprepared(), range(1_000_000), workers=2, min_workers=2)
    with pytest.raises(gangline.JobFailed, match=r"Nothing.producer_work is missing"):
        gangline.run(type("Nothing", (gangline.Runner,), {})(), [1], workers=1)
    with pytest.raises(ValueError, match="on_error must be 'fail' or 'skip', got 'stop'"):
        gangline.run(Squares(), [1], on_error="stop")
    with pytest.raises(TypeError, match="load is a hook of the runner"):
        gangline.run(Squares(), [1], load=tasks.counter)


class Prepared(OrderedRunner):
    @staticmethod
    def producer_init(device, cfg):
        with open(cfg.path, "a") as file:
            file.write(f"{device}\n")
        if device == "cuda:1" and cfg.fails:
            assert wait_until(lambda: cfg.path.with_name("worked").exists())
            raise OSError("no weights")

    @staticmethod
    def producer_work(device, cfg, data):
        cfg.path.with_name("worked").touch()
        return data


def prepared(path, fails):
    cfg = CfgNode()
    cfg.path, cfg.fails = path, fails
    return Prepared(["cpu", "cuda:1"], cfg)


def test_a_runner_of_easycore_prepares_its_producers_in_its_constructor(tmp_path):
    path = tmp_path / "prepared"
    runner = prepared(path, False)
    assert wait_until(lambda: path.exists() and sorted(path.read_text().split()) == ["cpu", "cuda:1"])
    runner.close()
    assert runner.is_activate is False


def test_a_producer_of_easycore_that_fails_after_another_is_ready_ends_the_call(tmp_path):
    runner = prepared(tmp_path / "prepared", True)
    with pytest.raises(gangline.PoolError, match="no weights"):
        runner(range(100_000))
    runner.close()
