"""Pipelines: stages in a row, expansions and gatherings."""

import gc
import itertools
import os
import signal
import subprocess
import sys
import textwrap
import threading
import weakref

import numpy as np
import pytest
import stages
from conftest import HERE, PATIENCE, processes, wait_until

from gangline import Closed, JobFailed, NoWorkers, Pipeline, PoolError

PREAMBLE = f"""
import itertools, os, signal, sys, time
sys.path.insert(0, {str(HERE)!r})
import stages
from gangline import Pipeline

def peak_kib():
    # `ru_maxrss` begins with what the process had that started this one.
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
"""


def tiles(n):
    """Three parts for each number."""
    for at in range(3):
        yield 10 * n + at


def failing_call(pipeline, items):
    """Start a call on a thread, which the end of the pipeline ends."""

    def call():
        with pytest.raises(PoolError):
            list(pipeline.imap(items))

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def run(pipeline, items, **options):
    with pipeline:
        return list(pipeline.imap(items, **options))


def test_items_go_through_all_stages_in_order():
    pipeline = (
        Pipeline()
        .stage(stages.double, workers=2)
        .stage(stages.load_ten, stages.add, workers=1)
        .stage(stages.double, workers=2)
    )
    records = run(pipeline, range(50), keys=map(str, range(50)))
    assert [record.value for record in records] == [2 * (2 * x + 10) for x in range(50)]
    assert [record.key for record in records] == [str(x) for x in range(50)]
    assert [record.index for record in records] == list(range(50))
    # The workers are numbered through all stages: 0 and 1, 2, 3 and 4.
    assert {record.worker for record in records} <= {3, 4}
    assert all(record.attempts == 1 and record.seconds >= 0 for record in records)


def test_a_method_leaves_the_pipeline_as_it_is():
    first = Pipeline().stage(stages.double, workers=1)
    twice = first.stage(stages.double, workers=1)
    with first, twice:
        assert (first.map([1, 2]), twice.map([1, 2])) == ([2, 4], [4, 8])
    assert repr(twice) == "Pipeline(double, double 2): closed"


def test_each_step_that_may_fail_has_a_name_of_its_own():
    pipeline = Pipeline().stage(abs, name="tiles 2").expand(tiles).stage(abs).gather().expand(tiles).stage(abs).gather()
    assert repr(pipeline.stage(tiles)) == "Pipeline(tiles 2, tiles, abs, gather, tiles 3, abs 2, gather, tiles 4)"


def test_values_between_processes_are_not_read_by_the_driver():
    stages.Counting.pickled = stages.Counting.rebuilt = 0
    pipeline = Pipeline().stage(stages.echo, workers=1).stage(stages.echo, workers=1).stage(stages.echo, workers=1)
    values = [record.value for record in run(pipeline, map(stages.Counting, range(10)))]
    assert [value.number for value in values] == list(range(10))
    assert (stages.Counting.pickled, stages.Counting.rebuilt) == (10, 10)


def test_arrays_go_through_stages_and_can_be_written_to():
    arrays = [np.full(100_000, at) for at in range(4)]
    for record in run(Pipeline().stage(stages.double, workers=2).stage(stages.echo, workers=1), arrays):
        assert record.value[0] == 2 * record.index
        record.value[:] += 1


def test_stages_have_their_own_lists_and_retries(tmp_path):
    pipeline = (
        Pipeline()
        .stage(stages.fail_at_first, workers=1, retries=1)
        .stage(stages.echo_all, workers=1, batch=8)
        .stage(None, lambda _, xs: xs, workers=1, batch="auto")
    )
    assert [record.value for record in run(pipeline, [(tmp_path, at) for at in range(20)])] == list(range(20))


def test_an_error_names_the_stage():
    pipeline = (
        Pipeline()
        .stage(stages.double, workers=1)
        .stage(stages.fail_on_five, workers=2, name="five")
        .stage(lambda x: 1 // (x - 4), workers=1, name="four")
    )
    with pipeline:
        records = list(pipeline.imap([1, 2, 2.5, 3], keys="abcd"))
        with pytest.raises(JobFailed, match=r"item 1 \(b\) failed: in five: ValueError: five"):
            pipeline.map([1, 2.5], keys="ab")
        assert pipeline.map([3]) == [0]
    assert [record.ok for record in records] == [True, False, False, True]
    assert records[1].error.startswith("in four: ZeroDivisionError: ")
    assert records[2].error.startswith("in five: ValueError: five\n\nTraceback (most recent call last):")
    assert "stages.py" in records[2].error and "_stages.py" not in records[2].error
    assert (records[1].worker, records[1].attempts) == (3, 1)
    assert records[2].worker in (1, 2)


def test_a_worker_that_dies_in_a_stage_is_the_error_of_its_item():
    pipeline = Pipeline().stage(stages.kill_on_five, workers=1).stage(stages.kill_on_five, workers=1)
    records = run(pipeline, range(8))
    assert [record.index for record in records if not record.ok] == [5]
    assert records[5].error.startswith("in kill_on_five: the worker died: ")


def test_a_worker_that_was_killed_is_replaced():
    with Pipeline().stage(stages.process, workers=1).stage(stages.echo, workers=1) as pipeline:
        records = pipeline.imap(itertools.count())
        killed = next(records).value
        os.kill(killed, signal.SIGKILL)
        assert any(record.value != killed for record in records if record.ok)
        records.close()
        assert pipeline.map([1])[0] != killed


def test_a_timeout_ends_a_task_of_its_stage():
    naps = Pipeline().stage(stages.echo, workers=1).stage(stages.sleep, workers=1, timeout=2)
    records = run(naps, [0, 1000, 0])
    assert [record.ok for record in records] == [True, False, True]
    assert records[1].error == "in sleep: the attempt took longer than 2s"


def test_parts_are_gathered_with_their_parent():
    sums = Pipeline().stage(stages.echo, workers=1).expand(stages.count_to).stage(stages.double, workers=2)
    sums = sums.stage(stages.double, workers=1).gather().stage(stages.sum_up, workers=1)
    assert [record.value for record in run(sums, [3, 0, 5, 1])] == [(3, 12), (0, 0), (5, 40), (1, 0)]


@pytest.mark.parametrize("order", ["input", "completion"])
@pytest.mark.parametrize("backend", ["processes", "threads"])
def test_a_gathering_may_be_first_and_last(order, backend):
    pipeline = Pipeline(order=order).expand(tiles).stage(stages.double, workers=2, backend=backend).gather()
    records = run(pipeline, range(20), keys=range(100, 120))
    assert order == "completion" or [record.index for record in records] == list(range(20))
    for index, key, value, *_ in sorted(records):
        assert key == 100 + index
        assert value == (index, [20 * index, 20 * index + 2, 20 * index + 4])
    assert {record.worker for record in records} == {None}


def test_one_expansion_follows_another():
    pipeline = (
        Pipeline()
        .expand(tiles)
        .stage(stages.echo, workers=1)
        .gather()
        .expand(lambda gathered: gathered[1])
        .stage(stages.double, workers=2)
        .gather()
    )
    assert [record.value for record in run(pipeline, [1, 2])] == [
        ((1, [10, 11, 12]), [20, 22, 24]),
        ((2, [20, 21, 22]), [40, 42, 44]),
    ]


@pytest.mark.parametrize("backend", ["processes", "threads"])
def test_a_parent_fails_with_its_first_failed_part(backend):
    def parts(n):
        yield from (n, n + 1)
        if n == 8:
            raise KeyError("eight")
        yield n + 2

    pipeline = Pipeline().stage(stages.echo, workers=1, backend=backend).expand(parts)
    pipeline = pipeline.stage(stages.fail_on_five, workers=1, backend=backend).gather()
    records = run(pipeline, [0, 4, 8, 12], keys="abcd")
    assert [record.ok for record in records] == [True, False, False, True]
    assert records[1].error.startswith("in fail_on_five, part 1: ValueError: five\n\nTraceback")
    assert records[2].error.startswith("in parts, part 2: KeyError: 'eight'\n\nTraceback")
    assert "test_pipeline.py" in records[2].error and "_stages.py" not in records[2].error
    assert [record.key for record in records] == list("abcd")


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda x: 1 // 0, "ZeroDivisionError"),
        (lambda x: 3, "TypeError: 'int' object is not iterable"),
        (lambda x: [threading.Lock()], "cannot pickle"),
        (lambda x: [1, threading.Lock()], "part 1: TypeError: cannot pickle"),
    ],
)
def test_an_expansion_that_fails_is_the_error_of_its_item(function, says):
    pipeline = Pipeline().expand(function).stage(stages.echo, workers=1).gather()
    (record,) = run(pipeline, [1])
    assert record.error.startswith("in <lambda>, part") and says in record.error


def test_parts_are_made_as_there_is_room_for_them(tmp_path):
    made = []

    def parts(folder):
        for at in range(100_000):
            made.append(at)
            yield folder, at, 10

    pipeline = (
        Pipeline(window=4).expand(parts).stage(stages.wait_for_file, workers=1).gather().stage(lambda x: x, workers=1)
    )
    with pipeline:
        call = failing_call(pipeline, [tmp_path])
        assert wait_until(lambda: len(made) >= 4)
        assert len(made) <= 8
        pipeline.terminate()
        call.join(PATIENCE)


def test_a_part_does_not_wait_for_the_next_to_be_made(tmp_path):
    seen = threading.Event()

    def parts(_):
        yield tmp_path, 1, 0
        assert wait_until((tmp_path / "1").exists), "the first part was worked on meanwhile"
        seen.set()
        yield tmp_path, 2, 0

    run(Pipeline().expand(parts).stage(stages.wait_for_file, workers=1).gather(), [0])
    assert seen.is_set()


def test_items_are_read_no_further_than_the_windows():
    read = []

    def items():
        for at in itertools.count():
            read.append(at)
            yield at

    with Pipeline(window=2).stage(stages.echo, workers=1).stage(stages.echo, workers=1) as pipeline:
        records = pipeline.imap(items())
        for _ in range(20):
            next(records)
        # Those of the stages, one between them and one before them, and the records that wait for the caller.
        assert len(read) <= 20 + 2 * 2 + 2 + 2 + 2


def test_records_in_order_of_completion(tmp_path):
    pipeline = Pipeline(order="completion").stage(stages.echo, workers=1).stage(stages.wait_for_file, workers=2)
    records = run(pipeline.stage(stages.echo, workers=1), [(tmp_path, at, 5) for at in range(6)], keys="abcdef")
    assert records[0].index == 1
    assert sorted((record.index, record.key, record.value) for record in records) == [
        (at, key, at) for at, key in enumerate("abcdef")
    ]


def test_a_failure_in_order_of_completion_has_its_key():
    pipeline = Pipeline(order="completion").stage(stages.echo, workers=2).stage(stages.fail_on_five, workers=2)
    records = run(pipeline.stage(stages.echo, workers=2), range(30), keys=range(30))
    assert all(record.key == record.index for record in records) and len(records) == 30
    assert [record.index for record in records if not record.ok] == [5]


def test_threads_beside_processes():
    lock = threading.Lock()

    def locked(x):
        with lock:
            return x + 1

    pipeline = (
        Pipeline()
        .stage(locked, workers=1, backend="threads")
        .stage(stages.double, workers=1)
        .stage(locked, workers=2, backend="threads")
        .expand(lambda x: (x, x))
        .stage(locked, workers=2, backend="threads")
        .stage(stages.double, workers=1)
        .gather()
        .stage(stages.sum_up, workers=1)
        .stage(lambda x: (x, lock), workers=1, backend="threads")
    )
    records = run(pipeline, range(10))
    assert [record.value for record in records] == [((2 * x + 3, 8 * x + 16), lock) for x in range(10)]


def test_threads_hand_objects_over():
    one = object()
    pipeline = Pipeline().stage(stages.echo, workers=1, backend="threads").expand(lambda x: [x])
    pipeline = pipeline.stage(stages.echo, workers=2, backend="threads").gather()
    assert run(pipeline, [one])[0].value == (one, [one])


def test_an_output_that_cannot_go_to_a_process_is_an_error_of_its_stage():
    pipeline = Pipeline().stage(lambda x: threading.Lock(), workers=1, backend="threads", name="here")
    (record,) = run(pipeline.stage(stages.echo, workers=1), [1])
    assert record.error.startswith("in here: ") and "cannot pickle" in record.error


def test_inputs_and_outputs_that_cannot_be_sent_are_errors():
    pipeline = Pipeline().stage(stages.echo, workers=1).stage(lambda x: x if x < 3 else threading.Lock(), workers=1)
    records = run(pipeline.stage(stages.echo, workers=1), [1, threading.Lock(), 3, 2])
    assert [record.ok for record in records] == [True, False, False, True]
    assert "cannot pickle" in records[1].error and records[1].attempts == 0
    assert records[2].error.startswith("in <lambda>: TypeError: cannot pickle")


def test_workers_and_their_states_stay_between_calls():
    with Pipeline().stage(stages.echo, workers=1).stage(stages.process, workers=1) as pipeline:
        first = pipeline.map(range(3))
        records = pipeline.imap(itertools.count())
        dropped = next(records).value
        records.close()
        assert {*first, dropped, *pipeline.map([1])} == {first[0]}


def test_calls_at_the_same_time_have_workers_of_their_own():
    with Pipeline().stage(stages.double, workers=1) as pipeline:
        mixed = zip(pipeline.imap(range(50)), pipeline.imap(range(100, 150)))
        assert [(a.value, b.value) for a, b in mixed] == [(2 * x, 200 + 2 * x) for x in range(50)]


@pytest.mark.parametrize("backend", ["processes", "threads"])
def test_a_call_that_cannot_begin_leaves_the_workers_to_the_next(script, backend):
    process = script(
        PREAMBLE
        + f"""
import resource
with Pipeline().stage(stages.double, workers=1, backend="{backend}") as pipeline:
    print(pipeline.map([1]))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        pipeline.map([2])
    except OSError:
        print("no descriptor is left")
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    print(pipeline.map([3]))
"""
    )
    assert process.communicate(timeout=PATIENCE) == ("[2]\nno descriptor is left\n[6]\n", "")


def test_the_end_of_each_stage_is_called(tmp_path, monkeypatch):
    monkeypatch.setenv("NOTES", str(tmp_path / "notes"))
    pipeline = (
        Pipeline()
        .stage(stages.load_ten, stages.add, end=stages.note, workers=2)
        .stage(stages.echo, end=stages.note, workers=1)
    )
    assert [record.value for record in run(pipeline, [1])] == [11]
    assert sorted((tmp_path / "notes").read_text().split()) == ["10", "10", "None"]


def test_run_counts_and_reports(tmp_path):
    pipeline = Pipeline(report=[tmp_path / "run.html", tmp_path / "run.json"])
    with pipeline.stage(stages.fail_on_five, workers=1).stage(stages.double, workers=1, name="twice") as pipeline:
        assert str(pipeline.report()).strip() == "no run yet"
        summary = pipeline.run(iter(range(10)), keys="abcdefghij")
    assert (summary.ok, summary.failed, summary.already_done) == (9, 1, 0)
    assert summary.failures[0].key == "f"
    assert "fail_on_five" in str(summary) and "twice" in str(summary)
    assert "twice" in (tmp_path / "run.html").read_text()
    assert '"twice"' in (tmp_path / "run.json").read_text()


def test_progress_is_one_line(capsys):
    run(Pipeline(progress="Slides").stage(stages.echo, workers=1), range(3))
    assert capsys.readouterr().err.startswith("Slides: 3/3 items in")


def test_an_exception_of_the_input_comes_after_the_records_before_it():
    def items():
        yield 1
        raise OSError("gone")

    with Pipeline().stage(stages.echo, workers=1).stage(stages.double, workers=1) as pipeline:
        records = pipeline.imap(items())
        assert next(records).value == 2
        with pytest.raises(OSError, match="gone"):
            next(records)
        assert pipeline.map([4]) == [8]


def test_a_load_that_fails_names_its_stage():
    pipeline = Pipeline().stage(stages.echo, workers=1).stage(stages.load_fails, stages.add, workers=2, name="infer")
    with pipeline, pytest.raises(PoolError, match=r"in infer: load failed on worker \d: RuntimeError: no weights"):
        pipeline.map(itertools.count())


@pytest.mark.parametrize("options", [{}, {"min_workers": 1}, {"max_restarts": 1}])
def test_the_only_worker_of_a_stage_that_cannot_load_names_its_stage(options):
    infer = {"name": "infer", "workers": 1, **options}
    alone = Pipeline().stage(stages.load_fails, stages.add, **infer)
    before = Pipeline().stage(stages.echo, workers=1)
    between = before.stage(stages.load_fails, stages.add, **infer).stage(stages.echo, workers=1)
    for pipeline in (alone, between):
        match = r"^in infer: load failed on worker 0: RuntimeError: no weights"
        with pipeline, pytest.raises(NoWorkers, match=match):
            pipeline.map([1])


def test_a_call_that_fails_has_a_report(tmp_path):
    pipeline = Pipeline(report=tmp_path / "run.txt").stage(stages.load_fails, stages.add, workers=1, name="infer")
    with pipeline:
        with pytest.raises(PoolError, match="no weights"):
            pipeline.map([1])
        assert "no weights" in (tmp_path / "run.txt").read_text()


def test_no_workers_left_in_a_stage_are_an_error(monkeypatch, tmp_path):
    monkeypatch.setenv("NOTES", str(tmp_path / "loaded"))
    slow = Pipeline().stage(lambda x: (stages.sleep(1000) if x > 8 else 0) or x, workers=1)
    pipeline = slow.stage(stages.load_once, stages.kill_on_five_with_state, workers=1, name="infer")
    with pipeline, pytest.raises(PoolError, match="no second time"):
        pipeline.map([0.1, 5, *range(9, 100)])


def test_a_failure_that_nobody_was_told_of_does_not_hinder_the_next_call(monkeypatch, tmp_path):
    loaded = tmp_path / "loaded"
    monkeypatch.setenv("NOTES", str(loaded))
    with Pipeline().stage(stages.load_once, stages.kill_on_five_with_state, workers=1) as pipeline:
        records = pipeline.imap([1, 5, 6])
        assert next(records).value == 1
        assert wait_until(pipeline._workers[0].report), "the run has ended"
        records.close()
        loaded.unlink()
        assert pipeline.map([2]) == [2]


def test_a_load_that_fails_ends_a_call_whose_input_waits():
    blocked = threading.Event()

    def items():
        yield 1
        blocked.wait(PATIENCE)

    pipeline = Pipeline().stage(stages.load_fails, stages.add, workers=1)
    with pipeline, pytest.raises(PoolError, match="no weights"):
        pipeline.map(items())
    blocked.set()


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: Pipeline().imap([]), ValueError, r"needs a stage"),
        (lambda: Pipeline().expand(tiles).gather(), ValueError, r"expand\(tiles\) needs a stage for its parts"),
        (lambda: Pipeline().expand(tiles).imap([]), AttributeError, r"expand\(tiles\) are not gathered: .* imap\(\)"),
        (
            lambda: Pipeline().expand(tiles).stage(stages.echo).expand(tiles),
            AttributeError,
            r"expand\(tiles\) are not gathered",
        ),
        (lambda: Pipeline().stage(stages.echo).gather(), AttributeError, "gather"),
        (lambda: Pipeline().stage(stages.echo, worker=3), TypeError, "no option worker="),
        (lambda: Pipeline().stage(stages.echo, journal="a"), TypeError, "no option journal="),
        (lambda: Pipeline().stage(3), TypeError, "work must be a function, got 3"),
        (lambda: Pipeline().stage(), TypeError, "got 0 functions"),
        (lambda: Pipeline().stage(stages.echo, name=3), TypeError, "name must be a text, got 3"),
        (lambda: Pipeline().stage(stages.echo, workers=0), ValueError, "workers must be at least 1"),
        (lambda: Pipeline().stage(stages.echo, backend="gpu"), ValueError, "backend must be"),
        (lambda: Pipeline().stage(stages.echo, batch_wait=1), ValueError, "batch_wait"),
        (lambda: Pipeline(order="none"), ValueError, "order must be"),
        (lambda: Pipeline(resume=True), ValueError, "journal"),
        (lambda: Pipeline().expand(None), TypeError, "expand needs a function"),
        (lambda: Pipeline().expand(tiles, open_parents=0), ValueError, "open_parents must be at least 1"),
        (lambda: Pipeline().stage(stages.echo).imap([1], keys="ab"), ValueError, "2 keys for 1 items"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(make, error, says):
    with pytest.raises(error, match=says):
        make()


def test_a_function_that_cannot_be_sent_is_an_error_before_the_first_item():
    lock = threading.Lock()
    with pytest.raises(Exception, match="make it in `load`"):
        Pipeline().stage(lambda x: (x, lock), workers=1).imap([1])


def test_a_closed_pipeline_says_so():
    pipeline = Pipeline().stage(stages.echo, workers=1)
    with pipeline:
        pipeline.map([1])
    with pytest.raises(Closed, match="the pipeline is closed"):
        pipeline.imap([1])


def test_a_pipeline_that_is_closed_by_another_thread_says_so():
    pipeline = Pipeline().stage(stages.sleep, workers=1).stage(stages.echo, workers=1)
    records = pipeline.imap(itertools.repeat(0.01))
    next(records)
    pipeline.terminate()
    with pytest.raises(PoolError):
        list(records)


def test_a_dropped_pipeline_ends(tag):
    pipeline = Pipeline().stage(stages.echo, workers=1).expand(tiles).stage(stages.echo, workers=1).gather()
    pipeline.map([1])
    dropped = weakref.ref(pipeline)
    del pipeline
    gc.collect()
    assert dropped() is None
    assert wait_until(lambda: not processes(tag))


def test_a_pipeline_whose_functions_name_it_is_collected():
    class Model:
        def __init__(self):
            first = Pipeline().stage(self.work, workers=1, backend="threads")
            self.pipeline = first.expand(self.parts).stage(stages.echo, workers=1).gather()

        def work(self, item):
            return item

        def parts(self, item):
            return range(item)

    model = Model()
    assert model.pipeline.map([2]) == [(2, [0, 1])]
    assert model.pipeline.map([1]) == [(1, [0])]
    collected = weakref.ref(model)
    del model
    gc.collect()
    assert collected() is None


def test_a_generator_of_parts_is_closed_with_the_call():
    begun, closed = threading.Event(), threading.Event()

    def parts(_):
        try:
            for at in itertools.count():
                yield at
                begun.set()
        finally:
            closed.set()

    with Pipeline(window=2).expand(parts).stage(stages.echo, workers=1).gather() as pipeline:
        call = failing_call(pipeline, [1])
        assert begun.wait(PATIENCE)
    call.join(PATIENCE)
    assert closed.wait(PATIENCE)


@pytest.mark.parametrize("is_read", [True, False])
def test_a_pipeline_is_closed_with_work_open(script, is_read):
    process = script(
        PREAMBLE
        + f"""
def inputs():
    yield 1
    {"time.sleep(1000)" if is_read else "yield from itertools.count(2)"}

with (Pipeline(window=4).stage(stages.echo, workers=1).expand(lambda n: itertools.count(n))
        .stage(stages.echo, workers=1).gather()) as endless:
    records = endless.imap(inputs())
    import threading
    threading.Thread(target=lambda: next(records, None), daemon=True).start()
    with Pipeline().stage(stages.echo, workers=1).stage(stages.double, workers=1) as pipeline:
        print(next(pipeline.imap(inputs())).value, flush=True)
print("closed", flush=True)
os._exit(0)
"""
    )
    assert process.communicate(timeout=PATIENCE)[0] == "2\nclosed\n"


JOURNALED = (
    PREAMBLE
    + """
def parts(n):
    return [n, n]

pipeline = (
    Pipeline(journal="run.journal", resume=True)
    .stage(stages.echo, workers=1)
    .expand(parts)
    .stage(stages.echo, workers=2)
    .gather()
    .stage(lambda gathered: stages.note(gathered[0]), workers=1)
)
with pipeline:
    for record in pipeline.imap(range(2000)):
        print(record.value, flush=True)
"""
)


def test_a_journal_leaves_out_what_all_stages_have_done(script, tmp_path):
    environment = {**os.environ, "NOTES": str(tmp_path / "notes")}
    process = script(JOURNALED, env=environment)
    for _ in range(300):
        assert process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    first = 300 + len(process.communicate(timeout=PATIENCE)[0].split())
    again = script(JOURNALED, env=environment)
    out, err = again.communicate(timeout=PATIENCE)
    assert not err
    rest = [int(line) for line in out.split()]
    # What was written down is not done again, and what was not is done.
    assert rest and rest == list(range(rest[0], 2000))
    assert rest[0] >= 1
    noted = {int(line) for line in (tmp_path / "notes").read_text().split()}
    assert noted == set(range(2000)) and first >= 300


def test_a_call_that_was_dropped_leaves_the_journal_to_the_next(tmp_path):
    whole = Pipeline(journal=tmp_path / "journal", resume=True).stage(stages.echo, workers=1)
    with whole.stage(stages.double, workers=1) as pipeline:
        records = pipeline.imap(range(1000))
        assert next(records).value == 0
        records.close()
        rest = list(pipeline.imap(range(1000)))
    assert rest[-1].value == 1998
    assert [record.index for record in rest] == list(range(rest[0].index, 1000))


@pytest.mark.parametrize("order", ["input", "completion"])
def test_a_journal_counts_what_is_done(tmp_path, order):
    def pipeline(resume):
        whole = Pipeline(journal=tmp_path / "journal", resume=resume, key=str, order=order)
        return whole.stage(stages.fail_on_five, workers=1).stage(stages.double, workers=1)

    with pipeline(False) as first:
        assert first.run(range(8))[:3] == (7, 1, 0)
    with pipeline(True) as again:
        assert again.run(range(10))[:3] == (2, 1, 7)
    with pipeline(True) as last:
        (failed,) = last.imap(range(10))
        assert (failed.index, failed.key, failed.ok) == (5, "5", False)
    other = Pipeline(journal=tmp_path / "journal", resume=True, key=str).stage(stages.double, workers=1)
    with other, pytest.raises(PoolError, match="journal"):
        other.map([1])


def test_functions_of_the_main_script(script):
    process = script(
        PREAMBLE
        + """
class Slide:
    def __init__(self, name): self.name = name

def open_slide(name): return Slide(name)
def tiles(slide): return [Slide(f"{slide.name}/{at}") for at in range(2)]
def infer(tile): return Slide(tile.name.upper())
def write(gathered):
    slide, results = gathered
    return slide, [type(result) is Slide and result.name for result in results]

print("started")
with (Pipeline().stage(open_slide, workers=1).expand(tiles).stage(infer, workers=1).gather()
        .stage(write, workers=1)) as pipeline:
    (slide, names), = pipeline.map(["a"])
print(type(slide) is Slide, names)
""",
    )
    assert process.communicate(timeout=PATIENCE) == ("started\nTrue ['A/0', 'A/1']\n", "")


@pytest.mark.parametrize("options", ["", "journal='run.journal', key=str"])
@pytest.mark.parametrize("manner", ["with", "without"])
def test_ctrl_c_is_raised_once_and_leaves_no_process(script, tag, manner, options):
    make = f"Pipeline({options}).stage(stages.echo, workers=1).stage(stages.sleep, workers=2)"
    loop = """
for record in pipeline.imap(itertools.chain([0, 0], itertools.repeat(1000))):
    print(record.value, flush=True)
"""
    body = f"with {make} as pipeline:\n{textwrap.indent(loop, '    ')}"
    process = script(PREAMBLE + (body if manner == "with" else f"pipeline = {make}\n{loop}"))
    assert [process.stdout.readline(), process.stdout.readline()] == ["0\n", "0\n"]
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGINT
    assert err.count("KeyboardInterrupt") == 1
    assert not processes(tag)


def test_ctrl_c_while_a_call_waits_for_the_one_before_ends_its_workers(script, tag):
    process = script(
        PREAMBLE
        + """
from gangline._workers import StageWorkers
wait = StageWorkers.are_usable
def interrupted(workers):
    os.kill(os.getpid(), signal.SIGINT)
    return wait(workers)
StageWorkers.are_usable = interrupted

with Pipeline().stage(stages.sleep, workers=1) as pipeline:
    records = pipeline.imap([0, 1000])
    next(records)
    records.close()
    try:
        pipeline.map([0])
    except KeyboardInterrupt:
        print(pipeline.map([0]))
"""
    )
    assert process.communicate(timeout=PATIENCE) == ("[0]\n", "")
    assert not processes(tag)


@pytest.mark.parametrize("make", ["Pipeline().stage(stages.echo, workers=1)", "Pool(None, max, workers=1)"])
def test_a_fork_closes_its_copy_whatever_other_threads_do(script, make):
    process = script(
        PREAMBLE
        + f"""
import threading
from gangline import Pool
owner = {make}
owner._lock.acquire()
child = os.fork()
if child == 0:
    # As a thread of the parent, which is not here, has the lock.
    thread = threading.Thread(target=owner.close, daemon=True)
    thread.start()
    thread.join({PATIENCE} / 2)
    os._exit(thread.is_alive())
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    )
    assert process.communicate(timeout=PATIENCE) == ("0\n", "")


def test_a_killed_driver_leaves_no_process(script, tag):
    process = script(
        PREAMBLE
        + """
with Pipeline().stage(stages.echo, workers=1).stage(stages.sleep, workers=2) as pipeline:
    for record in pipeline.imap(itertools.chain([0, 0], itertools.repeat(1000))):
        print(record.value, flush=True)
"""
    )
    assert [process.stdout.readline(), process.stdout.readline()] == ["0\n", "0\n"]
    process.send_signal(signal.SIGKILL)
    process.wait(PATIENCE)
    assert wait_until(lambda: not processes(tag))


def test_a_pipeline_that_is_not_closed_ends_with_the_script(script, tag, tmp_path):
    process = script(
        PREAMBLE
        + """
pipeline = Pipeline().stage(stages.load_ten, stages.add, end=stages.note, workers=1).stage(stages.echo, workers=1)
print(pipeline.map([1]))
records = pipeline.imap(itertools.count())
print(next(records).value)
""",
        env={**os.environ, "NOTES": str(tmp_path / "notes")},
    )
    assert process.communicate(timeout=PATIENCE) == ("[11]\n10\n", "")
    assert (tmp_path / "notes").read_text() == "10\n"
    assert not processes(tag)


def test_a_fork_of_the_driver_cannot_use_the_pipeline(script):
    process = script(
        PREAMBLE
        + """
import gangline
def try_to(use):
    try:
        print(use(), flush=True)
    except gangline.PoolError as error:
        print(error, flush=True)

with Pipeline().stage(stages.echo, workers=1).stage(stages.echo, workers=1) as pipeline:
    records = pipeline.imap(itertools.count())
    next(records)
    child = os.fork()
    if child == 0:
        try_to(lambda: pipeline.map([1, 2]))
        try_to(lambda: list(records))
        sys.exit()
    os.waitpid(child, 0)
    records.close()
    print(pipeline.map([3]))
"""
    )
    out = process.communicate(timeout=PATIENCE)[0]
    assert out.count("this pool is of process") == 2 and out.endswith("\n[3]\n"), out


def test_a_slow_last_stage_bounds_the_memory(script):
    process = script(
        PREAMBLE
        + """
def make(_): return bytes(1 << 20)
def slow(x):
    time.sleep(0.002)
    return len(x)
with (Pipeline().expand(lambda n: range(n)).stage(make, workers=2).stage(slow, workers=1).gather()
        .stage(lambda x: sum(x[1]), workers=1)) as pipeline:
    print(pipeline.map([500]))
print(peak_kib() < 250_000)
"""
    )
    assert process.communicate(timeout=PATIENCE) == (f"[{500 << 20}]\nTrue\n", "")


def test_a_slow_caller_bounds_the_memory(script):
    process = script(
        PREAMBLE
        + """
def make(_): return bytes(1 << 20)
with Pipeline().stage(make, workers=2) as pipeline:
    for record in pipeline.imap(range(400)):
        time.sleep(0.005)
print(record.index, peak_kib() < 200_000)
"""
    )
    assert process.communicate(timeout=PATIENCE) == ("399 True\n", "")


def test_types_grow_with_the_stages(tmp_path):
    pytest.importorskip("mypy")
    program = tmp_path / "typed.py"
    program.write_text(
        """
from typing import Iterator
import gangline

def load(context: gangline.Context) -> float: return 1.0
def read(path: str) -> bytes: return b""
def tiles(slide: bytes) -> Iterator[int]: yield 1
def infer(state: float, xs: list[int]) -> list[float]: return [state]
def write(gathered: tuple[bytes, list[float]]) -> None: ...

slides = gangline.Pipeline().stage(read, workers=4)
parts = slides.expand(tiles).stage(load, infer, batch="auto")
reveal_type(slides)
reveal_type(parts)
whole = parts.gather().stage(write)
reveal_type(whole)
whole.map([1])
slides.stage(infer)
"""
    )
    ended = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(program)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    lines = ended.stdout.splitlines()
    assert [line.split('"')[1] for line in lines if "Revealed" in line] == [
        "gangline._pipeline.Pipeline[str, bytes]",
        "gangline._pipeline.Parts[str, bytes, float]",
        "gangline._pipeline.Pipeline[str, None]",
    ], ended.stdout
    errors = [line for line in lines if ": error:" in line]
    assert "List item 0 has incompatible type" in errors[0], ended.stdout
    assert 'Argument 1 to "stage"' in errors[1], ended.stdout
