"""Workers that are forked by a process that has imported their modules."""

import itertools
import os
import random
import signal
import sys
import textwrap

import pytest
import tasks
from conftest import HERE, PATIENCE, processes, wait_until

from gangline import Executor, ForkServer, Pipeline, Pool, PoolError, Service
from gangline._modules import modules_of

PREAMBLE = f"""
import itertools, os, signal, sys, time
sys.path.insert(0, {str(HERE)!r})
import tasks, gangline
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Return a function that writes a module, and returns a count of its imports in all processes."""
    monkeypatch.syspath_prepend(str(tmp_path))
    # For scripts.
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)

    def write(name, text=""):
        noted = tmp_path / f"{name}.imports"
        note = f"import os\nwith open({str(noted)!r}, 'a') as noted: noted.write('x')\n"
        path = tmp_path / f"{name.replace('.', '/')}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(note + textwrap.dedent(text))
        return lambda: len(noted.read_text()) if noted.exists() else 0

    return write


def parent(_, x):
    return os.getpid(), os.getppid()


def meet_parent(_, x):
    tasks.meet(None, x)
    return parent(None, x)


@pytest.mark.parametrize("start", ["spawn", "forkserver", ForkServer(["json"])])
def test_results_are_the_same(start):
    with Pool(tasks.identity, tasks.fail_on, workers=2, start=start) as pool:
        assert [record.ok for record in pool.imap(range(6))] == [True, True, False] * 2
    with Pipeline().stage(lambda x: x + 1, workers=1, start=start).stage(str, workers=1, start=start) as pipeline:
        assert pipeline.map(range(3)) == ["1", "2", "3"]
    with Service(None, tasks.squares, batch=2, workers=1, start=start) as service:
        assert service(3) == 9
    with Executor(1, start=start) as executor:
        assert list(executor.map(pow, [2, 3], [5, 2])) == [32, 9]


@pytest.mark.parametrize(
    ("work", "why"),
    [(tasks.kill_worker, "SIGKILL"), (tasks.hard_exit, "5"), (tasks.exit_task, "SystemExit: 3: the task called")],
)
def test_a_fault_is_the_error_of_its_item(work, why):
    with Pool(None, work, workers=2, start="forkserver") as pool:
        records = list(pool.imap(range(4)))
    assert [record.ok for record in records] == [True, False, True, True]
    assert why in records[1].error


def test_a_module_is_imported_once_for_all_workers_and_restarts(module, tmp_path):
    count = module("expensive")
    folder = tmp_path / "met"
    folder.mkdir()
    with Pool(None, meet_parent, workers=3, start=ForkServer(["expensive"])) as pool:
        met = pool.map([(str(folder), 3)] * 3)
        for worker, _ in met:
            os.kill(worker, signal.SIGKILL)
        again = pool.map([(str(folder), 1)] * 3)
    assert len({worker for worker, _ in met}) == 3
    assert not {worker for worker, _ in met} & {worker for worker, _ in again}
    assert len({server for _, server in (*met, *again)}) == 1
    assert count() == 1


def test_modules_of_the_functions_are_imported_once(module):
    count = module("theirs", "def work(_, x): return 2 * x\n")
    import theirs

    with Pool(None, theirs.work, workers=2, start="forkserver") as pool:
        assert pool.map(range(4)) == [0, 2, 4, 6]
    # By this process, and by the server.
    assert count() == 2
    assert modules_of((None, theirs.work, [lambda: (random.random(), itertools.chain)])) == [
        "theirs",
        "random",
        "itertools",
    ]


def test_a_worker_that_was_killed_is_replaced():
    with Pool(None, parent, workers=1, start="forkserver") as pool:
        (killed, server), *_ = pool.map([0])
        os.kill(killed, signal.SIGKILL)
        (worker, parent_of_it), *_ = pool.map([0])
    assert worker != killed
    assert parent_of_it == server != os.getpid()


def test_workers_are_spawned_once_the_server_was_killed(capfd):
    with Pool(None, parent, workers=2, start="forkserver", retries=2) as pool:
        _, server = pool.map([0])[0]
        os.kill(server, signal.SIGKILL)

        def are_spawned():
            worker, parent_of_it = pool.map([0])[0]
            if parent_of_it != os.getpid():
                os.kill(worker, signal.SIGKILL)
            return parent_of_it == os.getpid()

        assert wait_until(are_spawned)
    assert capfd.readouterr().err.count("so workers are spawned, not forked") == 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_driver_leaves_no_process(script, tag, number):
    process = script(
        PREAMBLE
        + """
with gangline.Pool(None, tasks.sleep, workers=2, start="forkserver") as pool:
    for record in pool.imap(itertools.chain([0, 0], itertools.repeat(1000))):
        print(record.value, flush=True)
"""
    )
    assert [process.stdout.readline(), process.stdout.readline()] == ["0\n", "0\n"]
    assert len(processes(tag)) == 4
    process.send_signal(number)
    process.wait(PATIENCE)
    assert wait_until(lambda: not processes(tag))


def test_workers_end_with_the_driver_and_not_with_its_forks(script, tag):
    process = script(
        PREAMBLE
        + """
with gangline.Pool(None, tasks.sleep, workers=2, start="forkserver") as pool:
    for record in pool.imap(itertools.chain([0, 0], itertools.repeat(1000))):
        child = os.fork()
        if child == 0:
            time.sleep(1000)
        print(child, flush=True)
"""
    )
    forks = [int(process.stdout.readline()), int(process.stdout.readline())]
    process.kill()
    process.wait(PATIENCE)
    try:
        assert wait_until(lambda: set(processes(tag)) <= set(forks))
    finally:
        for fork in forks:
            os.kill(fork, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_driver_that_ends_during_the_imports_leaves_no_process(script, tag, module, number):
    count = module("endless", "import time\ntime.sleep(1000)\n")
    process = script(
        PREAMBLE
        + """
with gangline.Pool(None, tasks.sleep, workers=2, start=gangline.ForkServer(["endless"])) as pool:
    pool.map([0])
"""
    )
    assert wait_until(lambda: count() == 1)
    process.send_signal(number)
    process.wait(PATIENCE)
    assert process.returncode == -number
    assert wait_until(lambda: not processes(tag))


def test_ctrl_c_is_raised_once_and_leaves_no_process(script, tag):
    process = script(
        PREAMBLE
        + """
with gangline.Pool(None, tasks.sleep, workers=2, start="forkserver") as pool:
    for record in pool.imap(itertools.chain([0, 0], itertools.repeat(1000))):
        print(record.value, flush=True)
"""
    )
    assert [process.stdout.readline(), process.stdout.readline()] == ["0\n", "0\n"]
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGINT
    assert err.count("KeyboardInterrupt") == 1
    assert not processes(tag)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        (
            "threaded",
            "import threading as t, time\nt.Thread(target=time.sleep, args=(1000,), daemon=True, name='mine').start()",
            "gangline: the import of 'threaded' has left a thread running (mine), so workers are spawned, not forked\n",
        ),
        (
            "torch.cuda",
            "def is_initialized(): return True",
            "gangline: an import has initialised torch.cuda, so workers are spawned, not forked\n",
        ),
    ],
)
def test_a_process_that_cannot_be_forked_is_not(module, capfd, name, text, reason):
    module(name, text)
    with Pool(None, parent, workers=2, start=ForkServer([name])) as pool:
        assert {server for _, server in pool.map(range(4))} == {os.getpid()}
    assert capfd.readouterr().err == reason


def test_threads_that_end_before_a_fork_are_no_reason(module, capfd):
    module(
        "obliging",
        """
        import os, threading
        end = threading.Event()
        thread = threading.Thread(target=end.wait)
        thread.start()
        os.register_at_fork(before=lambda: (end.set(), thread.join()))
        """,
    )
    with Pool(None, parent, workers=1, start=ForkServer(["obliging"])) as pool:
        assert pool.map([0])[0][1] != os.getpid()
    assert capfd.readouterr().err == ""


def test_a_module_that_cannot_be_imported_is_an_error():
    with (
        Pool(None, tasks.echo, workers=2, start=ForkServer(["missing_one"])) as pool,
        pytest.raises(PoolError, match="the fork server cannot import 'missing_one': ModuleNotFoundError: No module"),
    ):
        pool.map([0])


def test_a_server_that_crashes_is_none(module, capfd):
    module("crashing", "import sys\nprint('so far', file=sys.stderr)\nos.kill(os.getpid(), 9)\n")
    with Pool(None, tasks.echo, workers=2, start=ForkServer(["crashing"])) as pool:
        assert pool.map(range(3)) == [0, 1, 2]
    err = capfd.readouterr().err
    assert err.startswith("so far\ngangline: the fork server could not prepare: ")
    assert err.count("\n") == 2


def test_prints_arrive_once(module, capfd, monkeypatch):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    module("talkative", "import sys\nprint('at its import')\nprint('half a line', end='')\n")

    def say(_, x):
        print("at work", x)
        return os.getpid()

    with Pool(None, say, workers=1, start=ForkServer(["talkative"])) as pool:
        os.kill(pool.map([7])[0], signal.SIGKILL)
        pool.map([8])
    assert capfd.readouterr().err == "at its import\nhalf a lineat work 7\nat work 8\n"


def test_each_worker_has_its_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with Pool(None, tasks.environment, gpus=[2], start="forkserver") as pool:
        assert pool.map(["CUDA_VISIBLE_DEVICES"]) == ["2"]

    def surroundings(_, x):
        # A group of its own: Ctrl-C reaches the driver only.
        assert os.getpgid(0) == os.getpid()
        return os.environ.get("LATER"), os.environ.get("EARLIER"), os.getcwd(), os.getpid()

    monkeypatch.setenv("EARLIER", "1")
    monkeypatch.chdir("/")
    with Pool(None, surroundings, workers=1, start="forkserver") as pool:
        *first, worker = pool.map([0])[0]
        assert first == [None, "1", "/"]
        monkeypatch.setenv("LATER", "a=b\nc")
        monkeypatch.delenv("EARLIER")
        monkeypatch.chdir(tmp_path)
        os.kill(worker, signal.SIGKILL)
        assert pool.map([0])[0][:3] == ("a=b\nc", None, str(tmp_path))


def test_a_module_that_is_imported_once_has_no_gpus_of_a_worker(module, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    module("early", "VISIBLE = os.environ.get('CUDA_VISIBLE_DEVICES')")

    def visible(_, x):
        import early

        return early.VISIBLE, os.environ["CUDA_VISIBLE_DEVICES"]

    for start, seen in [("spawn", "2"), (ForkServer(["early"]), None)]:
        with Pool(None, visible, gpus=[2], start=start) as pool:
            assert pool.map([0]) == [(seen, "2")]


def test_random_numbers_of_workers_differ():
    numpy = pytest.importorskip("numpy")

    def number(_, x):
        return random.random(), numpy.random.random(), os.getpid()

    with Pool(None, number, workers=1, start=ForkServer(["numpy.random"])) as pool:
        *before, worker = pool.map([0])[0]
        os.kill(worker, signal.SIGKILL)
        *after, other = pool.map([0])[0]
    assert other != worker
    assert all(one != two for one, two in zip(before, after))


def test_a_journal_leaves_out_what_is_done(tmp_path):
    journal = tmp_path / "run.journal"
    with Pool(None, tasks.fail_on, workers=2, journal=journal, start="forkserver") as pool:
        assert [record.ok for record in pool.imap(range(4))] == [True, True, False, True]
    with Pool(None, tasks.echo, workers=2, journal=journal, resume=True, start="forkserver") as pool:
        assert pool.map(range(6)) == [2, 4, 5]


def test_a_closed_pool_leaves_no_process_and_no_descriptor(tag):
    def descriptors():
        return sorted(os.listdir("/proc/self/fd"))

    pools = [Pool(None, tasks.echo, workers=2, start="forkserver") for _ in range(2)]
    # The first has what all pools share.
    assert pools[0].map([0, 1]) == [0, 1]
    pools[0].close()
    before = descriptors()
    assert pools[1].map([0, 1]) == [0, 1]
    assert len(processes(tag)) == 3
    pools[1].close()
    assert wait_until(lambda: descriptors() == before)
    assert not processes(tag)


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"start": "fork"}, ValueError, "start must be 'spawn', 'forkserver' or a gangline.ForkServer, got 'fork'"),
        ({"start": ForkServer("torch")}, TypeError, r"preload must be a list of module names such as \['torch'\]"),
        ({"start": ForkServer([sys])}, TypeError, "preload must be a list of module names"),
        ({"start": "forkserver", "backend": "threads"}, ValueError, "start is how processes are started"),
    ],
)
def test_what_is_no_start_is_refused(options, kind, text):
    with pytest.raises(kind, match=text):
        Pool(None, tasks.echo, workers=1, **options)
    with pytest.raises(kind, match=text):
        Pipeline().stage(tasks.echo, workers=1, **options)
