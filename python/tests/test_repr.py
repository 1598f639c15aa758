"""What objects of the package say of themselves: one line, which starts nothing and never fails."""

import os

import numpy as np
import pytest
import stages
import tasks
from conftest import processes
from gates import Gates

from gangline import Batch, Executor, JobFailed, Pipeline, Pool, Record, Service


class Broken:
    """A function whose name, class and text fail."""

    def __call__(self, state, x):
        return x

    def __getattr__(self, name):
        if name == "__name__":
            raise RuntimeError("no name")
        raise AttributeError(name)

    def __repr__(self):
        raise RuntimeError("no text")


def record(**values):
    return Record(
        **{"index": 0, "key": None, "value": 1, "error": None, "gpus": (), "seconds": 0.5, "attempts": 1, **values}
    )


def test_a_pool_says_where_it_runs_and_whether_it_is_open(tag):
    pool = Pool(None, tasks.echo, workers=2)
    assert repr(pool) == "Pool(echo, workers=2): not started"
    assert not processes(tag)
    with pool:
        pool.map([1])
        assert repr(pool) == "Pool(echo, workers=2): open"
    assert repr(pool) == "Pool(echo, workers=2): closed"
    pool = Pool(None, tasks.echo, devices="cuda:0*2,cpu")
    assert repr(pool) == "Pool(echo, devices='cuda:0*2,cpu'): not started"
    pool.terminate()
    assert repr(pool) == "Pool(echo, devices='cuda:0*2,cpu'): closed"
    assert repr(Pool(None, tasks.echo, gpus=[0, 1])) == "Pool(echo, gpus='0 1'): not started"
    assert repr(Pool(None, tasks.echo, gpus="0-1", workers=4, share=True)).startswith(
        "Pool(echo, gpus='0-1', workers=4)"
    )
    assert not processes(tag)


def test_services_executors_and_pipelines_say_the_same(tag):
    service = Service(None, tasks.echo, workers=1)
    executor = Executor(3)
    pipeline = Pipeline().stage(stages.double, workers=1).expand(range).stage(abs, workers=2).gather()
    assert repr(service) == repr(service.with_deadline(3)) == "Service(echo, workers=1): not started"
    assert repr(executor) == "Executor(workers=3): not started"
    assert repr(pipeline) == "Pipeline(double, range, abs, gather)"
    assert not processes(tag)
    with service, pipeline:
        service(1)
        pipeline.map([1])
        assert repr(service) == "Service(echo, workers=1): open"
        assert repr(pipeline) == "Pipeline(double, range, abs, gather): open"
    executor.shutdown()
    assert repr(executor) == "Executor(workers=3): closed (shut down)"
    assert (repr(service)[-6:], repr(pipeline)[-6:]) == ("closed", "closed")


def test_a_pool_with_a_journal_is_open_between_calls(tmp_path):
    with Pool(None, tasks.echo, workers=1, journal=tmp_path / "run.journal") as pool:
        pool.map([1])
        assert repr(pool).endswith(": open")


def test_what_is_asked_does_not_wait(tmp_path):
    gates = Gates(tmp_path)
    with Pool(None, tasks.hold, workers=1) as pool:
        future = pool.submit(gates.item("held"))
        gates.await_begun("held")
        # As a thread that waits for the lock of a GPU has it.
        with pool._lock:
            assert repr(pool) == "Pool(hold, workers=1): open"
        gates.open("held")
        assert future.result() == "held"


def test_names_are_one_line():
    name = "read\nall " + "x" * 100
    pipeline = Pipeline().stage(stages.double, workers=1, name=name)
    assert repr(pipeline) == f"Pipeline({('read all ' + 'x' * 100)[:57]}...)"
    with Pool(None, Broken(), workers=1, backend="threads") as pool:
        assert repr(pool) == "Pool(Broken, workers=1): not started"
        assert pool(3) == 3


def test_an_object_whose_constructor_failed_has_a_text():
    for kind in (Pool, Service, Executor, Pipeline):
        assert repr(kind.__new__(kind)).startswith("<gangline.")


def test_a_fork_says_of_which_process_it_is():
    with Pool(None, tasks.echo, workers=1) as pool:
        pool.map([1])
        child = os.fork()
        if child == 0:
            os._exit(7 if repr(pool) == f"Pool(echo, workers=1): of process {os.getppid()}" else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.mark.parametrize("name", ["array", "broken", "text", "list", "nested", "lines"])
def test_a_record_is_one_line(name):
    value = {
        "array": np.zeros((1000, 1000)),
        "broken": Broken(),
        "text": "x" * 10**6,
        "list": list(range(10**6)),
        "nested": {"a": [[[[[[[[0]]]]]]]]},
        "lines": "a\nb",
    }[name]
    text = repr(record(value=value, error=None, key=value))
    assert text.startswith("Record(index=0, key=") and text.endswith(")")
    assert "\n" not in text and len(text) < 500


def test_a_record_shows_its_values():
    expected = "Record(index=0, key='a.mrc', value=3, error=None, gpus=('0',), seconds=0.5, attempts=1, worker=None)"
    assert repr(record(key="a.mrc", value=3, gpus=("0",))) == expected
    error = "ValueError: bad\n\nTraceback (most recent call last):"
    assert "error='ValueError: bad\\n" in repr(record(error=error))
    assert str(JobFailed(record(error=error))) == f"item 0 failed: {error}"


def test_batches_and_summaries_are_one_line():
    assert repr(Batch.auto(64, latency="50ms")) == "Batch(most=64, latency='50ms')"
    with Pipeline().stage(stages.fail_on_five, workers=1) as pipeline:
        summary = pipeline.run([1, 5])
    assert repr(summary) == "RunSummary(ok=1, failed=1, already_done=0)"
