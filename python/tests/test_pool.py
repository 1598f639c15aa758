"""Pools as their users have them."""

import gc
import itertools
import os
import threading
import time
import weakref
from pathlib import Path

import pytest
import tasks
from conftest import PATIENCE, wait_until

from gangline import JobFailed, Pool, PoolError
from gangline._options import device_list

np = pytest.importorskip("numpy")


def test_records_come_in_order_with_all_that_is_known():
    with Pool(None, tasks.fail_on, workers=2) as pool:
        records = list(pool.imap(range(6), keys="abcdef"))
    assert [record.value for record in records] == [0, 1, None, 3, 4, None]
    assert [record.key for record in records] == list("abcdef")
    assert [record.index for record in records] == list(range(6))
    failed = records[2]
    assert not failed.ok
    assert failed.error.startswith("ValueError: bad 2\n\nTraceback (most recent call last):")
    assert "tasks.py" in failed.error
    assert "_loop.py" not in failed.error
    assert failed.attempts == 1
    assert failed.worker in (0, 1)
    assert failed.seconds >= 0


def test_map_returns_values_or_raises_the_first_failure():
    with Pool(None, tasks.fail_on, workers=2) as pool:
        assert pool.map([0, 1, 3]) == [0, 1, 3]
        with pytest.raises(JobFailed, match=r"item 1 \(b\) failed: ValueError: bad 2") as failed:
            pool.map([1, 2, 5], keys="abc")
        assert failed.value.record.index == 1
        assert pool.map([4]) == [4]


def test_failed_items_are_tried_again():
    with Pool(None, tasks.fail_on, workers=1, retries=2) as pool:
        assert [record.attempts for record in pool.imap([0, 2])] == [1, 3]


def test_workers_and_their_states_stay_between_calls():
    with Pool(tasks.counter, tasks.count, workers=1) as pool:
        first = pool.map(range(3))
        second = pool.map(range(2))
    assert [seen for seen, _ in first + second] == [1, 2, 3, 4, 5]
    assert len({pid for _, pid in first + second}) == 1


def test_a_worker_knows_its_gpus():
    with Pool(tasks.identity, tasks.context_of, gpus="3 5") as pool:
        seen = {record.value.worker: record for record in pool.imap(range(20))}
    assert all(seen[at].gpus == seen[at].value.gpus == (gpu,) for at, gpu in enumerate("35") if at in seen)
    assert {record.value.device for record in seen.values()} == {"cuda:0"}


def test_the_gpus_of_a_worker_are_set_before_it_imports_anything(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with Pool(None, tasks.environment, gpus=[2]) as pool:
        assert pool.map(["CUDA_VISIBLE_DEVICES"]) == ["2"]
    with Pool(None, tasks.environment, gpus=[2], visible="all") as pool:
        assert pool.map(["CUDA_VISIBLE_DEVICES"]) == [None]
    with Pool(tasks.identity, tasks.context_of, gpus=[2], visible="all") as pool:
        assert pool.map([0])[0].device == "cuda:2"


def test_a_narrow_window_leaves_items_for_each_worker(monkeypatch, tmp_path):
    monkeypatch.setenv("WORKERS", str(tmp_path))
    with Pool(None, tasks.echo_beside_another, workers=2, batch="auto", window=16) as pool:
        records = list(pool.imap(range(200)))
    assert [record.value for record in records] == list(range(200))
    assert {record.worker for record in records} == {0, 1}


def test_the_program_chooses_the_size_of_lists():
    with Pool(None, tasks.squares, workers=2, batch="auto") as pool:
        assert list(pool.map(range(2_000))) == [number * number for number in range(2_000)]


def test_lists_have_at_most_the_size_of_a_batch():
    with Pool(None, tasks.squares, workers=2, batch=4) as pool:
        assert pool.map(range(100)) == [x * x for x in range(100)]


def test_an_output_of_a_list_may_be_an_error():
    with Pool(None, tasks.list_with_errors, workers=1, batch=4) as pool:
        assert [record.ok for record in pool.imap(range(6))] == [True, False] * 3


def test_one_bad_input_fails_alone():
    with Pool(None, tasks.bad_in_list, workers=1, batch=8) as pool:
        assert [record.index for record in pool.imap(range(16)) if not record.ok] == [5]


def test_a_list_that_is_too_large_for_memory_is_divided():
    with Pool(None, tasks.out_of_memory_above_two, workers=1, batch=8) as pool:
        records = list(pool.imap(range(16)))
    assert [record.value for record in records] == list(range(16))


def test_a_wrong_number_of_outputs_is_an_error():
    with Pool(None, tasks.too_few, workers=1, batch=2) as pool:
        assert "outputs for" in next(iter(pool.imap(range(2)))).error


def test_only_the_input_without_an_output_fails():
    with Pool(None, tasks.leave_out_five, workers=1, batch=8) as pool:
        records = list(pool.imap(range(16)))
    assert [record.index for record in records if not record.ok] == [5]
    assert "work returned 0 outputs for 1 inputs" in records[5].error
    assert [record.value for record in records if record.ok] == [x for x in range(16) if x != 5]


@pytest.mark.parametrize(("work", "name"), [(tasks.columns, "dict"), (tasks.without_order, "set")])
def test_outputs_without_an_order_are_no_list(work, name):
    with Pool(None, work, workers=1, batch=2) as pool:
        records = list(pool.imap([10, 20]))
    assert all(f"work returns a list of outputs, got {name}" in record.error for record in records)


def test_an_error_about_a_name_that_is_not_unicode_is_told():
    with Pool(None, tasks.unreadable_name, workers=1) as pool:
        (record,) = pool.imap(["caf"], keys=["caf\udce9"])
        assert record.error.startswith("ValueError: cannot read caf\\udce9.mrc\n\nTraceback")
        assert "0 (caf\\udce9): ValueError: cannot read caf\\udce9.mrc" in pool.report()
        assert str(JobFailed(record)).encode()


def test_values_are_those_that_were_sent():
    values = [
        None,
        True,
        1,
        1 << 80,
        -0.0,
        0.1,
        float("inf"),
        "text",
        "\udc80",
        b"bytes",
        (1, 2),
        [1, (2,)],
        {"a": 1, "b": {2: 3}},
        {"__gangline__": 1},
        {1, 2},
        Path("a"),
        1j,
        "x" * 100_000,
        list(range(50_000)),
    ]
    with Pool(None, tasks.echo, workers=2) as pool:
        got = pool.map(values)
    assert got == values
    assert [type(value) for value in got] == [type(value) for value in values]
    assert list(got[12]) == ["a", "b"]


def test_values_are_nested_deeply():
    value: list = []
    for _ in range(300):
        value = [value]
    with Pool(None, tasks.echo, workers=2) as pool:
        got = pool.map([value])[0]
    for _ in range(300):
        assert len(got) == 1
        got = got[0]
    assert got == []


def test_arrays_travel_in_shared_memory_and_can_be_written_to():
    given = np.arange(1_000_000, dtype=np.float32)
    with Pool(None, tasks.add_in_place, workers=2) as pool:
        for value in pool.map(itertools.repeat(given, 5)):
            assert np.array_equal(value, given + 1)
            value[0] = 7
    assert given[0] == 0


def test_small_arrays_can_be_written_to():
    with Pool(None, tasks.add_in_place, workers=1) as pool:
        assert pool.map([np.zeros(3)])[0].tolist() == [1, 1, 1]


def test_descriptors_are_not_lost():
    with Pool(None, tasks.array, workers=2) as pool:
        pool.map([(100_000,)] * 5)
        before = len(os.listdir("/proc/self/fd"))
        pool.map([(100_000,)] * 200)
        # Each of the workers has at most eight pieces of shared memory, some of which it may not have had before.
        assert len(os.listdir("/proc/self/fd")) <= before + 16
    assert len(os.listdir("/proc/self/fd")) < before


def test_inputs_are_read_no_further_than_the_window():
    pulled = []
    with Pool(None, tasks.echo, workers=2, window=5) as pool:
        records = pool.imap(pulled.append(x) or x for x in itertools.count())
        for taken in range(1, 30):
            next(records)
            time.sleep(0.005)
            assert len(pulled) <= taken + 5 - 1 + 1
        records.close()


def test_a_slow_item_does_not_keep_the_window_from_growing(tmp_path):
    with Pool(None, tasks.wait_for_others, workers=2) as pool:
        assert pool.map([(str(tmp_path), at, 40) for at in range(60)]) == list(range(60))


def test_nothing_is_read_before_the_first_record_is_asked_for():
    pulled = []
    with Pool(None, tasks.echo, workers=1) as pool:
        pool.imap(pulled.append(x) or x for x in range(5))
        time.sleep(0.05)
    assert pulled == []


def test_records_come_while_the_input_blocks():
    gate = threading.Event()

    def inputs():
        yield from (1, 2)
        assert gate.wait(PATIENCE)
        yield 3

    with Pool(None, tasks.echo, workers=2) as pool:
        records = pool.imap(inputs())
        assert [next(records).value, next(records).value] == [1, 2]
        gate.set()
        assert next(records).value == 3
        assert next(records, None) is None


def test_records_in_order_of_completion(tmp_path):
    with Pool(None, tasks.wait_for_others, workers=2, order="completion") as pool:
        assert pool.map([(str(tmp_path), at, 3) for at in range(4)])[-1] == 0


def test_an_exception_of_the_input_comes_after_the_records_before_it():
    def inputs():
        yield 1
        yield 2
        raise LookupError("no more")

    with Pool(None, tasks.echo, workers=2) as pool:
        got = []
        with pytest.raises(LookupError, match="no more"):
            for record in pool.imap(inputs()):
                got.append(record.value)
        assert got == [1, 2]
        assert pool.map([3]) == [3]


def test_what_an_abandoned_call_left_is_not_seen_by_the_next():
    with Pool(None, tasks.echo, workers=2) as pool:
        for record in pool.imap(range(100)):
            if record.index == 3:
                break
        assert pool.map("abc") == list("abc")


def test_two_threads_use_a_pool():
    results = {}
    with Pool(None, tasks.square, workers=2) as pool:

        def call(start):
            results[start] = pool.map(range(start, start + 200))

        threads = [threading.Thread(target=call, args=(start,)) for start in (0, 1000, 2000)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == {start: [x * x for x in range(start, start + 200)] for start in (0, 1000, 2000)}


def test_a_task_has_a_pool_of_its_own():
    with Pool(None, tasks.pool_in_a_task, workers=2) as pool:
        assert pool.map([2, 3]) == [4, 9]


def test_the_end_is_called_once_for_each_worker(tmp_path, monkeypatch):
    monkeypatch.setenv("END_FILE", str(tmp_path / "ended"))
    with Pool(None, tasks.ms, workers=2, end=tasks.end) as pool:
        pool.map(range(100))
    assert (tmp_path / "ended").read_text() == "ended\n" * 2


def test_no_input_is_no_record():
    with Pool(None, tasks.echo, workers=2) as pool:
        assert pool.map([]) == []


def test_a_pool_that_is_never_used_starts_nothing():
    with Pool(None, tasks.echo, workers=2):
        pass


def test_a_closed_pool_says_so():
    pool = Pool(None, tasks.echo, workers=1)
    pool.close()
    pool.close()
    with pytest.raises(PoolError, match="the pool is closed"):
        pool.imap([1])


def test_threads_share_the_objects_of_this_process():
    given = [threading.Lock(), threading.Lock()]
    with Pool(None, tasks.echo, workers=2, backend="threads") as pool:
        assert all(got is lock for got, lock in zip(pool.map(given), given))
        records = list(pool.imap(range(100)))
    assert [record.value for record in records] == list(range(100))
    assert {record.worker for record in records} <= {0, 1}


def test_threads_keep_their_thread_local_values():
    own = threading.local()

    def count(_, x):
        own.seen = getattr(own, "seen", 0) + 1
        return own.seen

    with Pool(None, count, workers=1, backend="threads") as pool:
        assert pool.map(range(5)) + pool.map(range(2)) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("batch", [None, 4])
def test_threads_have_states_failures_retries_and_ends(batch):
    ended = []

    def work(state, given):
        for x in given if batch else [given]:
            if x == 5:
                raise ValueError("five")
        return given

    with Pool(
        lambda context: context.worker, work, workers=2, retries=1, batch=batch, backend="threads", end=ended.append
    ) as pool:
        records = list(pool.imap(range(12), keys="abcdefghijkl"))
    assert [record.index for record in records if not record.ok] == [5]
    assert records[5].error.startswith("ValueError: five\n\nTraceback") and records[5].attempts == 2
    assert records[5].key == "f"
    assert sorted(ended) == [0, 1]


def test_threads_that_cannot_load_are_an_error():
    with Pool(tasks.load_fails, tasks.echo, workers=2, backend="threads") as pool, pytest.raises(PoolError) as error:
        pool.map([1])
    assert "RuntimeError: no weights" in str(error.value)


def test_threads_have_a_journal(tmp_path):
    journal = tmp_path / "run.journal"
    with Pool(None, tasks.fail_on, workers=2, journal=journal, backend="threads") as pool:
        assert [record.ok for record in pool.imap(range(4))] == [True, True, False, True]
    with Pool(None, tasks.echo, workers=2, journal=journal, resume=True, backend="threads") as pool:
        assert pool.map(range(6)) == [2, 4, 5]


def test_keys_come_from_a_function_too():
    with Pool(None, tasks.echo, workers=1, key=lambda x: f"<{x}>") as pool:
        assert [record.key for record in pool.imap("ab")] == ["<a>", "<b>"]


def test_too_few_keys_are_an_error():
    with Pool(None, tasks.echo, workers=1) as pool:
        with pytest.raises(ValueError, match="1 keys for 2 items"):
            pool.imap([1, 2], keys=["a"])
        with pytest.raises(ValueError, match="item 1 has no key: there are 1 keys"):
            list(pool.imap(iter([1, 2]), keys=["a"]))


def test_the_report_counts():
    with Pool(None, tasks.fail_on, workers=1) as pool:
        list(pool.imap(range(6)))
        report = pool.report()
    assert "6 items in" in report
    assert "4 ok, 2 failed" in report
    assert report.workers[0][:5] == (0, "cpu", None, 6, 2)
    assert "  2 items: ValueError: bad {} (in work on cpu)\n    item 2\n    item 5\n" in report


def test_progress_is_one_line(capsys):
    with Pool(None, tasks.echo, workers=1, progress="Echoing") as pool:
        pool.map(range(3))
    assert "Echoing: 3/3 items in" in capsys.readouterr().err


def test_a_journal_leaves_out_what_is_done(tmp_path):
    journal = tmp_path / "run.journal"
    with Pool(None, tasks.fail_on, workers=2, journal=journal) as pool:
        assert [record.ok for record in pool.imap(range(4))] == [True, True, False, True]
    with Pool(None, tasks.echo, workers=2, journal=journal, resume=True) as pool:
        assert [record.value for record in pool.imap(range(6))] == [2, 4, 5]
    with Pool(None, tasks.echo, workers=2, journal=journal, resume=True) as pool:
        assert pool.map(range(6)) == []
        with pytest.raises(TypeError, match="with a journal, inputs are plain JSON"):
            pool.map([(1, 2)])


def test_short_inputs_fill_lists_with_a_journal_too(tmp_path):
    with Pool(None, tasks.sizes, workers=1, batch=64, journal=tmp_path / "run.journal") as pool:
        lists = sum(1 / size for size in pool.map(range(20_000)))
    # One by one they made more than 5,000 lists.
    assert lists < 2000


def test_a_journal_knows_items_by_their_keys(tmp_path):
    journal = tmp_path / "run.journal"
    arrays = [np.full(50_000, at) for at in range(4)]
    with Pool(None, tasks.mean, workers=2, journal=journal) as pool:
        assert pool.map(arrays[:3], keys="abc") == [0, 1, 2]
    with Pool(None, tasks.mean, workers=2, batch=None, journal=journal, resume=True) as pool:
        records = list(pool.imap([*arrays[::-1], {1}], keys=["d", "c", "b", "a", ["e", 1]]))
        assert [(record.key, record.index) for record in records] == [("d", 0), (["e", 1], 4)]
        assert records[0].value == 3
        with pytest.raises(TypeError, match="with a journal, keys are plain JSON"):
            pool.map([1], keys=[(1, 2)])
    with (
        Pool(None, tasks.mean, workers=2, journal=journal, resume=True) as pool,
        pytest.raises(PoolError, match="key"),
    ):
        pool.map([1])


def test_items_that_are_done_are_counted(tmp_path, capsys):
    journal = tmp_path / "run.journal"
    with Pool(None, tasks.fail_on, workers=2, journal=journal) as pool:
        list(pool.imap(range(4)))
    with Pool(None, tasks.fail_on, workers=2, journal=journal, resume=True, progress="Again") as pool:
        list(pool.imap(range(5)))
        assert "1 ok, 1 failed, 3 already done" in pool.report()
    line = capsys.readouterr().err
    assert "Again: 5/5 items in" in line and "1 failed, 3 already done" in line


def test_items_that_are_done_take_no_memory(tmp_path):
    journal = tmp_path / "run.journal"
    with Pool(None, tasks.echo, workers=2, batch=100, journal=journal) as pool:
        pool.map(map(tasks.Input, range(1000)), keys=range(1000))
    gate, are_read = threading.Event(), threading.Event()
    alive = weakref.WeakSet()

    def inputs():
        for at in range(1000):
            alive.add(value := tasks.Input(at))
            yield value
        del value
        are_read.set()
        assert gate.wait(PATIENCE)

    with Pool(None, tasks.echo, workers=2, journal=journal, resume=True) as pool:
        records = []
        thread = threading.Thread(target=lambda: records.extend(pool.imap(inputs(), keys=range(1000))))
        thread.start()
        assert are_read.wait(PATIENCE) and wait_until(lambda: not alive)
        gate.set()
        thread.join()
        assert pool.report().already_done == 1000
    assert records == []


@pytest.mark.parametrize("journal", [None, "run.journal"])
def test_a_pool_of_threads_whose_functions_name_it_is_collected(tmp_path, journal):
    ended = []

    class Model:
        def __init__(self):
            options = {"workers": 2, "backend": "threads", "end": lambda _: ended.append(1)}
            self.pool = Pool(self.load, self.work, journal=None if journal is None else tmp_path / journal, **options)

        def load(self, context):
            return self

        def work(self, state, item):
            return state is self and item

    model = Model()
    assert model.pool.map([1, 2]) == [1, 2]
    gc.collect()
    if journal is None:
        assert model.pool.map([3]) == [3]
    collected = weakref.ref(model)
    ended.clear()
    del model

    def is_collected():
        gc.collect()
        return collected() is None

    assert wait_until(is_collected), "a thread may let go of its last call after the result of that is there"
    assert len(ended) == (2 if journal is None else 0)


def test_a_pool_whose_key_names_it_is_collected():
    class Model:
        def __init__(self):
            self.pool = Pool(None, tasks.echo, workers=1, key=self.key)

        def key(self, item):
            return str(item)

    model = Model()
    assert model.pool.map([1]) == [1]
    collected = weakref.ref(model)
    del model
    gc.collect()
    assert collected() is None


def test_resume_needs_a_journal():
    with pytest.raises(ValueError, match="resume=True needs the journal"):
        Pool(None, tasks.echo, workers=1, resume=True)


def test_a_dropped_call_leaves_the_journal_to_the_next(tmp_path):
    with Pool(None, tasks.echo, workers=1, journal=tmp_path / "run.journal", resume=True) as pool:
        records = pool.imap(range(1000))
        assert next(records).value == 0
        records.close()
        rest = list(pool.imap(range(1000)))
    assert [record.index for record in rest] == list(range(rest[0].index, 1000))


def test_a_journal_of_an_earlier_run_is_not_overwritten(tmp_path):
    journal = tmp_path / "run.journal"
    journal.write_text("something else\n")
    with Pool(None, tasks.echo, workers=1, journal=journal) as pool, pytest.raises(PoolError, match="journal"):
        pool.map([1])


def test_the_program_writes_its_report(tmp_path):
    path = tmp_path / "run.txt"
    with Pool(None, tasks.echo, workers=1, report=path) as pool:
        pool.map([1])
    assert "1 ok" in path.read_text()


@pytest.mark.parametrize(
    "options", [{"batch": 0}, {"workers": 0}, {"window": True}, {"order": "random"}, {"visible": "none"}]
)
def test_a_wrong_option_names_what_is_allowed(options):
    with pytest.raises((TypeError, ValueError), match=r"must be"):
        Pool(None, tasks.echo, **options)


def test_what_the_program_refuses_is_an_error():
    with Pool(None, tasks.echo, devices="nonsense") as pool, pytest.raises(PoolError, match="nonsense"):
        pool.map([1])


def test_gpus_are_counted_as_this_process_sees_them(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6")
    for visible, device in (("own", "cuda:0"), ("all", "cuda:2")):
        with Pool(tasks.identity, tasks.context_of, gpus=[2], visible=visible) as pool:
            record = next(pool.imap([0]))
        assert (record.gpus, record.value.gpus, record.value.device) == (("2",), ("2",), device)


@pytest.mark.parametrize(
    ("variable", "given", "gpus"),
    [
        ("4,5,6", "all", ["0", "1", "2"]),
        ("4,5", ["all"], ["0", "1"]),
        ("4,5", "1,all", ["0", "1", "1"]),
        ("GPU-8932f937, MIG-4f1c2d3e,-1,7", "all", ["0", "1"]),
    ],
)
def test_all_is_a_worker_for_each_gpu_that_this_process_sees(monkeypatch, tmp_path, variable, given, gpus):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    with Pool(None, tasks.meet, gpus=given) as pool:
        records = list(pool.imap([(str(tmp_path), len(gpus))] * len(gpus)))
    assert sorted(gpu for record in records for gpu in record.gpus) == gpus


def test_all_in_a_list_of_devices_is_a_place_for_each_gpu(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6")
    assert device_list("cuda:all") == "cuda:0-2"
    assert device_list(["cuda:all*2", "cpu"]) == "cuda:0-2*2,cpu"
    assert device_list("cuda : all+cpu,cuda:1") == "cuda:0-2+cpu,cuda:1"


@pytest.mark.parametrize("options", [{"gpus": "all"}, {"gpus": [0, "all"]}, {"devices": "cpu,cuda:all"}])
@pytest.mark.parametrize("variable", ["", "-1", "NoDevFiles", "0,0", None])
def test_all_without_a_gpu_is_an_error(monkeypatch, options, variable):
    monkeypatch.setenv("PATH", "")
    if variable is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    with pytest.raises(ValueError, match=r"all stands for no GPU: CUDA_VISIBLE_DEVICES is .*nvidia-smi"):
        Pool(None, tasks.echo, **options)


def test_a_worker_without_gpus_is_on_the_cpu(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4")
    with Pool(tasks.identity, tasks.context_of, workers=1) as pool:
        context = pool.map([0])[0]
    assert (context.gpus, context.device) == ((), "cpu")


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"workers": 0}, ValueError, "workers must be at least 1, got 0"),
        ({"workers": "2"}, TypeError, "workers must be a whole number, got '2'"),
        ({"batch": 2.5}, TypeError, "batch must be a whole number, got 2.5"),
        ({"retries": -1}, ValueError, "retries must be at least 0, got -1"),
        ({"workers": 1, "min_workers": 2}, ValueError, "min_workers must be at most the number of workers, which is 1"),
        ({"order": "random"}, ValueError, "order must be 'input' or 'completion', got 'random'"),
        ({"lock_gpus": "never"}, ValueError, "lock_gpus must be True or False or 'wait', got 'never'"),
        ({"batch_wait": 1}, ValueError, "needs batch=n"),
        ({"load": "model"}, TypeError, "load must be a function, got 'model'"),
        ({"work": None}, TypeError, "work must be a function, got None"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_at_once(options, error, says):
    with pytest.raises(error) as raised:
        Pool(options.pop("load", None), options.pop("work", tasks.echo), **options)
    assert says in str(raised.value)


def test_a_time_that_is_none_is_refused():
    with Pool(None, tasks.echo, workers=1, timeout=-1) as pool, pytest.raises(ValueError, match="at least 0 seconds"):
        pool.map([1])
    with Pool(None, tasks.echo, workers=1, timeout="soon") as pool, pytest.raises(PoolError, match="'soon' for"):
        pool.map([1])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"gpus": "zero"}, "invalid value 'zero' for gpus=: \"zero\" is no GPU of a list"),
        ({"devices": "tpu"}, "invalid value 'tpu' for devices=: unknown device \"tpu\""),
        ({"workers": 1, "start_timeout": "soon"}, "invalid value 'soon' for start_timeout=: write a time"),
        ({"gpus": "0", "devices": "cpu"}, "the argument gpus= cannot be used with devices="),
    ],
)
def test_options_that_the_program_refuses_have_their_names_in_python_and_one_message(options, said, capfd):
    with pytest.raises(PoolError) as refused:
        Pool(None, tasks.echo, **options).map([1])
    assert str(refused.value).startswith(said)
    assert "--" not in str(refused.value)
    assert capfd.readouterr().err == ""


def test_a_print_that_looks_like_a_refusal_is_shown(capfd):
    with Pool(tasks.print_error, tasks.echo, workers=1) as pool:
        assert pool.map([1]) == [1]
    assert capfd.readouterr().err == "error: none of the program\n\nUsage: none\n"
