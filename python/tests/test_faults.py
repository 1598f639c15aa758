"""What must never wait for ever. Each test has a time limit, and fails if it leaves a process."""

import itertools
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import zipapp

import pytest
import tasks
from conftest import HERE, PATIENCE, processes, wait_until

from gangline import Pool, PoolError

PREAMBLE = f"""
import os, signal, sys, time, itertools
sys.path.insert(0, {str(HERE)!r})
import tasks, gangline
"""


def outcomes(work, inputs=range(4), **options):
    with Pool(None, work, workers=2, **options) as pool:
        records = list(pool.imap(inputs))
    assert [record.index for record in records] == list(range(len(records)))
    return records


@pytest.mark.parametrize(
    ("work", "why"),
    [
        (tasks.kill_worker, "SIGKILL"),
        (tasks.hard_exit, "5"),
        (tasks.exit_task, "SystemExit: 3: the task called sys.exit"),
        (tasks.unpicklable, "cannot pickle"),
        (tasks.raise_unrebuildable, "Unrebuildable: 1 and 2"),
    ],
)
def test_a_fault_is_the_error_of_its_item(work, why):
    records = outcomes(work)
    assert [record.ok for record in records] == [True, False, True, True]
    assert why in records[1].error


def test_a_worker_that_died_once_does_no_harm(tmp_path):
    path = str(tmp_path / "killed")
    records = outcomes(tasks.kill_worker_once, [(path, at) for at in range(4)])
    assert [record.value for record in records] == [0, 1, 2, 3]
    assert records[1].attempts == 2


@pytest.mark.parametrize(
    ("work", "batch"), [(tasks.lose_gpu, None), (tasks.lose_gpu_in_lists, 8), (tasks.lose_gpu_in_lists, 64)]
)
@pytest.mark.parametrize("workers", [1, 2])
def test_an_item_that_breaks_the_gpu_costs_no_other_item(work, batch, workers):
    with Pool(None, work, workers=workers, batch=batch) as pool:
        records = list(pool.imap(range(40)))
    assert [record.index for record in records if not record.ok] == [13]
    assert "device-side assert" in records[13].error
    assert records[13].attempts == 1


def test_an_exception_without_a_text_is_an_error():
    assert "its text failed" in outcomes(tasks.raise_unprintable, [1])[0].error


def test_an_output_that_cannot_be_rebuilt_is_an_error():
    assert "the output cannot be rebuilt: ValueError" in outcomes(tasks.not_loadable, [1])[0].error


def test_an_input_that_cannot_be_pickled_is_an_error():
    records = outcomes(tasks.echo, [0, threading.Lock(), 2])
    assert [record.ok for record in records] == [True, False, True]
    assert "cannot pickle" in records[1].error
    assert records[1].attempts == 0


def test_an_input_that_cannot_be_rebuilt_is_an_error():
    records = outcomes(tasks.echo, [0, tasks.NotLoadable(), 2])
    assert [record.ok for record in records] == [True, False, True]
    assert "invalid literal" in records[1].error


def test_a_function_that_cannot_be_sent_is_an_error_at_once():
    lock = threading.Lock()
    with pytest.raises(pickle.PicklingError, match="make it in `load`"):
        Pool(None, lambda _, x: (lock, x))


def test_a_closure_is_sent_with_cloudpickle():
    pytest.importorskip("cloudpickle")
    factor = 3
    with Pool(lambda _: factor, lambda state, x: state * x, workers=2) as pool:
        assert pool.map(range(3)) == [0, 3, 6]


def test_what_a_function_names_may_be_large():
    table = bytes(30 << 20)
    with Pool(None, lambda _, x: len(table) + x, workers=2) as pool:
        assert pool.map([1, 2]) == [len(table) + 1, len(table) + 2]


def test_an_exception_in_load_is_raised(capfd):
    with Pool(tasks.load_fails, tasks.echo, workers=2) as pool, pytest.raises(PoolError) as error:
        pool.map(range(4))
    assert re.match(r"load failed on worker \d: RuntimeError: no weights\n\nTraceback", str(error.value))
    assert "Traceback" not in capfd.readouterr().err


def test_a_worker_that_dies_in_load_is_an_error():
    with Pool(tasks.load_exits, tasks.echo, workers=1, max_restarts=1) as pool, pytest.raises(PoolError) as error:
        pool.map(range(4))
    assert "load failed on worker 0: its process exited with status 7" in str(error.value)


def test_a_load_that_fails_on_one_device_leaves_the_others(capfd, monkeypatch, tmp_path):
    monkeypatch.setenv("WORK_FILE", str(tmp_path / "begun"))
    said = ""

    def inputs():
        nonlocal said
        while "worker 1 cannot load: RuntimeError: no weights" not in said:
            yield 1
            said += capfd.readouterr().err
        yield 2

    with Pool(tasks.load_fails_beside_work, tasks.note_work, workers=2) as pool:
        assert pool.map(inputs())[-1] == 2
    said += capfd.readouterr().err
    assert said.count("Traceback") == 1


def test_fewer_workers_than_asked_for_are_an_error():
    with (
        Pool(tasks.load_fails_on_one, tasks.sleep, workers=2, min_workers=2) as pool,
        pytest.raises(PoolError) as error,
    ):
        pool.map(itertools.repeat(0.01))
    assert "load failed on worker 1" in str(error.value)


def test_a_load_that_fails_first_leaves_the_others():
    with Pool(tasks.load_fails_on_the_quickest, tasks.sleep, workers=2, min_workers=1) as pool:
        assert pool.map([0, 0, 0]) == [0, 0, 0]


def test_no_load_that_works_is_an_error_with_min_workers_too():
    with Pool(tasks.load_fails, tasks.echo, workers=2, min_workers=1) as pool, pytest.raises(PoolError) as error:
        pool.map([1, 2, 3])
    assert "no weights" in str(error.value)


def test_a_timeout_ends_a_task():
    with Pool(None, tasks.sleep, workers=1, timeout=2) as pool:
        records = list(pool.imap([0, 1000, 0]))
    assert [record.ok for record in records] == [True, False, True]


def test_a_pool_goes_on_after_a_worker_was_killed():
    with Pool(None, tasks.process, workers=1) as pool:
        records = pool.imap(itertools.count())
        killed = next(records).value
        os.kill(killed, signal.SIGKILL)
        assert any(record.value != killed for record in records if record.ok)
        records.close()
        assert pool.map([1])[0] != killed


def test_a_worker_that_ends_between_two_items_is_no_end_of_the_input():
    with Pool(None, tasks.process, workers=1, window=1) as pool:
        records = pool.imap(range(5))
        killed = next(records).value
        os.kill(killed, signal.SIGKILL)
        rest = [record.value for record in records]
        assert len(rest) == 4 and killed not in rest[1:]


def test_a_pool_that_is_closed_by_another_thread_says_so(tmp_path):
    for journal in (None, tmp_path / "run.journal"):
        pool = Pool(None, tasks.sleep, workers=1, window=2, journal=journal)
        records = pool.imap(itertools.repeat(0.01))
        next(records)
        pool.terminate()
        with pytest.raises(PoolError):
            list(records)


def test_a_huge_result_arrives():
    with Pool(None, tasks.huge, workers=2) as pool:
        assert [len(value) for value in pool.map([200, 1, 200])] == [200 << 20, 1 << 20, 200 << 20]


def test_few_descriptors_are_enough(script):
    process = script(
        PREAMBLE
        + """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
with gangline.Pool(None, tasks.echo_all, workers=2, batch=100, window=1000) as pool:
    print(sum(len(value) for value in pool.map(bytes(100_000) for _ in range(500))))
"""
    )
    out, err = process.communicate(timeout=PATIENCE)
    assert (out, err) == ("50000000\n", "")


def test_a_forked_child_of_a_task_is_no_second_answer():
    records = outcomes(tasks.fork, range(6))
    assert [record.value for record in records] == list(range(6))


def test_processes_of_a_task_end_with_the_pool():
    assert [record.value for record in outcomes(tasks.fork_and_stay)] == [0, 1, 2, 3]


def test_a_task_that_prints_much_does_not_block(script):
    process = script(
        PREAMBLE
        + """
with gangline.Pool(None, tasks.print_much, workers=2) as pool:
    print(pool.map([100, 1]), file=sys.stdout)
"""
    )
    out, err = process.communicate(timeout=PATIENCE)
    assert out == "[100, 1]\n"
    assert len(err) == 101 << 20


def test_ten_thousand_short_tasks_in_order():
    with Pool(None, tasks.ms, workers=2) as pool:
        assert pool.map(range(10_000)) == list(range(10_000))


def test_an_endless_input_ends_with_its_reader():
    with Pool(None, tasks.echo, workers=2) as pool:
        records = pool.imap(itertools.count())
        assert [next(records).value for _ in range(1000)] == list(range(1000))


def test_an_input_that_blocks_does_not_keep_the_pool_open(script):
    process = script(
        PREAMBLE
        + """
def inputs():
    yield 1
    time.sleep(1000)

with gangline.Pool(None, tasks.echo, workers=2) as pool:
    print(next(pool.imap(inputs())).value)
"""
    )
    assert process.communicate(timeout=PATIENCE)[0] == "1\n"
    assert process.returncode == 0


@pytest.mark.parametrize("options", ["", ", journal='run.journal', key=str"])
@pytest.mark.parametrize("manner", ["with", "without"])
def test_ctrl_c_is_raised_once_and_leaves_no_process(script, tag, manner, options):
    with_pool = f"""
with gangline.Pool(None, tasks.sleep, workers=2{options}) as pool:
    for record in pool.imap(itertools.chain([0, 0], itertools.repeat(1000))):
        print(record.value, flush=True)
"""
    without = f"""
pool = gangline.Pool(None, tasks.sleep, workers=2{options})
for record in pool.imap(itertools.chain([0, 0], itertools.repeat(1000))):
    print(record.value, flush=True)
"""
    process = script(PREAMBLE + (with_pool if manner == "with" else without))
    assert [process.stdout.readline(), process.stdout.readline()] == ["0\n", "0\n"]
    # As a terminal does: to the whole group.
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGINT
    assert err.count("KeyboardInterrupt") == 1
    assert not processes(tag)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_killed_driver_leaves_no_process(script, tag, number):
    process = script(
        PREAMBLE
        # Tests that a terminal must not end, as with nohup, would ignore SIGHUP here too.
        + "import signal\nsignal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
        + """
with gangline.Pool(None, tasks.sleep, workers=2) as pool:
    for record in pool.imap(itertools.chain([0, 0], itertools.repeat(1000))):
        print(record.value, flush=True)
"""
    )
    assert [process.stdout.readline(), process.stdout.readline()] == ["0\n", "0\n"]
    assert len(processes(tag)) == 3
    process.send_signal(number)
    process.wait(PATIENCE)
    assert wait_until(lambda: not processes(tag))


def test_a_fork_of_the_driver_does_not_hold_the_pool_open(script):
    process = script(
        PREAMBLE
        + """
with gangline.Pool(None, tasks.echo, workers=2) as pool:
    print(pool.map([1, 2]), flush=True)
    child = os.fork()
    if child == 0:
        os.close(1), os.close(2)
        time.sleep(1000)
    pool.map([3])
os.kill(child, signal.SIGKILL)
print("closed")
"""
    )
    assert process.communicate(timeout=PATIENCE)[0] == "[1, 2]\nclosed\n"


def test_a_fork_of_the_driver_cannot_use_the_pool(script):
    process = script(
        PREAMBLE
        + """
def try_to(use):
    try:
        print(use(), flush=True)
    except gangline.PoolError as error:
        print(error, flush=True)

with gangline.Pool(None, tasks.echo, workers=2) as pool:
    records = pool.imap(itertools.count())
    next(records)
    child = os.fork()
    if child == 0:
        try_to(lambda: pool.map([1, 2]))
        try_to(lambda: list(records))
        os._exit(0)
    os.waitpid(child, 0)
    print(pool.map([3]))
"""
    )
    out = process.communicate(timeout=PATIENCE)[0]
    assert out.count("this pool is of process") == 2 and out.endswith("\n[3]\n"), out


def test_a_pool_that_is_not_closed_ends_with_the_script(script, tmp_path):
    process = script(
        PREAMBLE
        + """
pool = gangline.Pool(None, tasks.echo, workers=2, end=tasks.end)
print(pool.map([1, 2]))
""",
        env={**os.environ, "END_FILE": str(tmp_path / "ended")},
    )
    assert process.communicate(timeout=PATIENCE)[0] == "[1, 2]\n"
    assert (tmp_path / "ended").read_text().startswith("ended\n")


def test_a_dropped_pool_ends(tag):
    pool = Pool(None, tasks.echo, workers=2)
    pool.map([1])
    del pool
    assert wait_until(lambda: not processes(tag))


def test_a_script_without_a_guard_starts_no_pools_in_workers(script):
    process = script(
        """
import os, gangline
class Point:
    def __init__(self, x): self.x = x
def double(_, point): return Point(2 * point.x)
pool = gangline.Pool(None, double, workers=2)
try:
    print([point.x for point in pool.map(map(Point, range(3)))])
finally:
    pool.close()
print("end")
"""
    )
    out, err = process.communicate(timeout=PATIENCE)
    assert (out, err) == ("[0, 2, 4]\nend\n", "")


@pytest.mark.parametrize("input", ["1", "Point(1)"])
def test_the_end_of_a_script_is_not_run_by_workers(script, tmp_path, input):
    process = script(
        f"""
import atexit, os, gangline, tasks
class Point:
    def __init__(self, x): self.x = x
def double(_, x): return getattr(x, "x", x) * 2
def note(text): open("notes", "a").write(text + "\\n")
atexit.register(lambda: note("exit"))
work = double if {input!r} == "1" else tasks.echo
try:
    with gangline.Pool(None, work, workers=2) as pool:
        pool.map([{input}] * 10)
except BaseException as error:
    note(repr(error))
finally:
    note("finally")
note("end")
""",
        env={**os.environ, "PYTHONPATH": f"{HERE}:{os.environ.get('PYTHONPATH', '')}"},
    )
    assert process.communicate(timeout=PATIENCE) == ("", "")
    notes = (tmp_path / "notes").read_text().split()
    assert [notes.count(text) for text in ("finally", "end")] == [1, 1], notes
    # Handlers of the interpreter's end are run by each process, as with modules.
    assert set(notes) == {"finally", "end", "exit"}


def test_a_process_of_multiprocessing_does_not_run_the_pool_anew(script):
    process = script(
        PREAMBLE
        + """
import multiprocessing
with gangline.Pool(None, tasks.echo, workers=1) as pool:
    print(pool.map([1]), flush=True)
process = multiprocessing.get_context("spawn").Process(target=print, args=("started",))
process.start()
process.join()
print(process.exitcode)
"""
    )
    out, err = process.communicate(timeout=PATIENCE)
    assert out == "[1]\n1\n"
    assert "put that below `if __name__ == '__main__':`" in err


def test_a_module_that_is_run_by_name_is_found(script, tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / "tool.py").write_text(
        "import gangline\ndef double(_, x): return 2 * x\n"
        "if __name__ == '__main__':\n with gangline.Pool(None, double, workers=1) as pool: print(pool.map([1, 2]))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-m", "package.tool"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=PATIENCE,
        check=False,
    )
    assert (ended.stdout, ended.stderr) == ("[2, 4]\n", "")


def test_a_folder_and_an_archive_with_a_main_module_are_found(tmp_path):
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "__main__.py").write_text(
        "import gangline\ndef double(_, x): return 2 * x\n"
        "with gangline.Pool(None, double, workers=1) as pool: print(pool.map([1, 2]))\n"
    )
    zipapp.create_archive(folder, tmp_path / "app.pyz")
    for what in (["app"], ["app.pyz"], ["-m", "app"]):
        ended = subprocess.run(
            [sys.executable, *what], capture_output=True, text=True, cwd=tmp_path, timeout=PATIENCE, check=False
        )
        assert (ended.stdout, ended.stderr) == ("[2, 4]\n", ""), what


def test_a_command_that_was_typed_in_needs_cloudpickle():
    pytest.importorskip("cloudpickle")
    command = """
import gangline
class Point: pass
def work(_, x):
    point = Point()
    point.x = 2 * x.x
    return point
one = Point()
one.x = 1
with gangline.Pool(None, work, workers=1) as pool: print(pool.map([one])[0].x)
"""
    ended = subprocess.run(
        [sys.executable, "-c", command], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (ended.stdout, ended.stderr) == ("2\n", "")


def test_a_function_below_the_first_use_of_a_pool_is_found(script):
    process = script(
        "import gangline\n"
        "def first(state, x): return x\n"
        "with gangline.Pool(None, first, workers=1) as pool: pool.map([1])\n"
        "def later(state, x): return 2 * x\n"
        "with gangline.Pool(None, later, workers=1) as pool: print(pool.map([1]))\n"
    )
    assert process.communicate(timeout=PATIENCE) == ("[2]\n", "")


def test_a_script_from_standard_input_has_functions():
    pytest.importorskip("cloudpickle")
    text = (
        "import gangline\n"
        "def double(_, x): return 2 * x\n"
        "with gangline.Pool(None, double, workers=1) as pool: print(pool.map([1, 2]))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-"], input=text, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert ended.stdout == "[2, 4]\n", ended.stderr
