"""Pools and pipelines whose workers are on other machines, with a real broker. Here a machine is a folder."""

import asyncio
import base64
import functools
import os
import pickle
import re
import shlex
import signal
import socket
import subprocess
import sys
import textwrap

import pytest
import stages
import tasks
from conftest import HERE, PATHS, PATIENCE, wait_until
from gates import Gates

import gangline

PAGE_BROKER = "nats://127.0.0.1:4222"
NO_BROKER = "nats://me:hunter2@127.0.0.1:1"


class Point:
    """Of the test's own module, which workers import."""

    def __init__(self, x):
        self.x = x


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def accepts(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """Return the address of a broker of these tests."""
    port, folder = free_port(), tmp_path_factory.mktemp("broker")
    command = ["nats-server", "-js", "-sd", str(folder), "-a", "127.0.0.1", "-p", str(port)]
    path = os.pathsep.join([os.environ["PATH"], "/usr/sbin"])
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={"PATH": path})
    assert wait_until(lambda: accepts(port))
    yield f"nats://127.0.0.1:{port}"
    process.kill()
    process.wait()


@pytest.fixture
def nats(broker, request):
    """Return the broker with a namespace of this test."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    return gangline.Nats(broker, namespace=name, lease_time=2, wait_for=PATIENCE)


@pytest.fixture
def worker(broker, nats, tmp_path):
    """Return a function that starts a worker."""
    started = []

    def start(devices="cpu*2", *, serve="python", path=PATHS, namespace=nats.namespace):
        folder = tmp_path / f"machine{len(started)}"
        folder.mkdir()
        names = {
            "GANGLINE_NATS": broker,
            "GANGLINE_NATS_NAMESPACE": namespace,
            "GANGLINE_DEVICES": devices,
            "GANGLINE_PROCESSES": "1",
            "GANGLINE_SERVE": serve,
            "PYTHONPATH": path,
        }
        with open(folder / "log", "wb") as log:
            command = [sys.executable, "-m", "gangline._serve"]
            process = subprocess.Popen(
                command, cwd=folder, env={**os.environ, **names}, stdout=log, stderr=log, start_new_session=True
            )
        process.log = folder / "log"
        started.append(process)
        return process

    yield start
    for process in started:
        process.terminate()
    for process in started:
        try:
            process.wait(PATIENCE)
        finally:
            process.kill()


def test_the_commands_and_the_program_of_the_page_run(broker, tmp_path):
    page = (HERE.parent / "README.md").read_text().partition("## Many machines")[2]
    [commands, *_] = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    [code, *_] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    [command] = [line for line in commands.splitlines() if line.startswith("gangline worker")]
    words = shlex.split(command.partition("#")[0].rstrip(" &").replace(PAGE_BROKER, broker))
    script = tmp_path / "cluster.py"
    script.write_text(code.replace(PAGE_BROKER, broker))
    options = {"cwd": tmp_path, "env": {**os.environ, "PYTHONPATH": PATHS, "GANGLINE_DEVICES": "cpu*2"}}
    with subprocess.Popen([*words, "--python", sys.executable], stderr=subprocess.PIPE, text=True, **options) as worker:
        ended = subprocess.run(
            [sys.executable, script], capture_output=True, text=True, timeout=PATIENCE, check=False, **options
        )
        worker.terminate()
        said = worker.communicate(timeout=PATIENCE)[1]
    assert (ended.stdout, ended.stderr, worker.returncode) == ("9801\n", "", 0)
    assert "gangline-python" in said


def test_functions_of_a_module_are_called_elsewhere(nats, worker):
    workers = [worker(), worker()]
    with gangline.Pool(None, tasks.square, nats=nats) as pool:
        assert pool.map(range(100)) == [x * x for x in range(100)]
        shares = pool.report().workers
    assert sum(share.items for share in shares) == 100
    assert {share.place for share in shares} <= {f"{socket.gethostname()}/{seat}" for seat in range(2)}
    assert all(each.poll() is None for each in workers)


def test_functions_of_a_script_travel_by_value(broker, nats, worker, run):
    worker()
    ended = run(
        f"""
        import gangline, os
        table = {{"a": 3}}
        class Point:
            def __init__(self, x):
                self.x = x
        def load(context):
            print("loaded in", os.getcwd(), flush=True)
            return context.device
        def work(device, x):
            return Point(table["a"] * x), device, os.getcwd()
        with gangline.Pool(load, work, nats=gangline.Nats({broker!r}, namespace={nats.namespace!r})) as pool:
            for n, (point, device, folder) in enumerate(pool.map(range(20))):
                assert type(point) is Point and point.x == 3 * n, point
                assert device == "cpu" and folder.endswith("machine0"), folder
        """
    )
    assert (ended.stdout, ended.stderr) == ("ok\n", "")


def test_what_workers_print_is_printed_there(nats, worker):
    process = worker("cpu")
    with gangline.Pool(None, tasks.say, nats=nats) as pool:
        pool.map(["a line of a task"])
    assert "a line of a task\n" in process.log.read_text()


def test_a_failed_item_has_its_traceback_and_its_attempts(nats, worker):
    worker()
    with gangline.Pool(None, tasks.exit_task, nats=nats, retries=2) as pool:
        (record,) = pool.imap([1])
    assert record.error.startswith("SystemExit: 3")
    assert "Traceback" in record.error
    assert record.attempts == 3


def test_large_values_go_both_ways(nats, worker):
    numpy = pytest.importorskip("numpy")
    worker()
    small, large = numpy.arange(20_000.0), numpy.arange(1_000_000.0)
    with gangline.Pool(None, tasks.echo, nats=nats) as pool:
        for sent, received in zip([large, small, large], pool.map([large, small, large])):
            assert (sent == received).all()


@pytest.mark.parametrize("batch", [4, "auto"])
def test_lists_are_finished_beside_the_next(nats, worker, batch):
    worker()
    options = {"finish": tasks.plus_one_each, "batch": batch}
    with gangline.Pool(None, tasks.echo_all, nats=nats, **options) as pool:
        assert pool.map(range(50)) == list(range(1, 51))


def test_a_worker_that_is_killed_costs_its_item_an_attempt(nats, worker, tmp_path):
    gates = Gates(tmp_path)
    first = worker("cpu")
    with gangline.Pool(None, tasks.hold, nats=nats) as pool:
        future = pool.submit(gates.item("a"))
        gates.await_begun("a")
        os.killpg(first.pid, signal.SIGKILL)
        second = worker("cpu")
        gates.open("a")
        assert future.result(PATIENCE) == "a"
        assert future.record.attempts == 2
    assert second.poll() is None


def test_a_process_of_a_worker_that_dies_costs_an_attempt(nats, worker, tmp_path):
    process = worker("cpu")
    with gangline.Pool(None, tasks.kill_worker_once, nats=nats) as pool:
        (record,) = pool.imap([(str(tmp_path / "died"), 1)])
    assert record.ok
    assert record.attempts == 2
    assert process.poll() is None


def test_a_pool_that_is_terminated_ends_its_tasks(nats, worker, tmp_path):
    gates = Gates(tmp_path)
    worker("cpu")
    pool = gangline.Pool(None, tasks.hold, nats=nats)
    future = pool.submit(gates.item("a"))
    gates.await_begun("a")
    pool.terminate()
    with pytest.raises(gangline.PoolError):
        future.result(PATIENCE)
    with gangline.Pool(None, tasks.square, nats=nats) as after:
        assert after.map([3]) == [9]


def test_stages_run_here_and_elsewhere(broker, nats, worker):
    worker()
    worker(namespace=f"{nats.namespace}-2")
    others = gangline.Nats(broker, namespace=f"{nats.namespace}-2", wait_for=PATIENCE)
    pipeline = (
        gangline.Pipeline()
        .stage(stages.double, workers=1)
        .expand(stages.count_to)
        .stage(stages.load_ten, stages.add, nats=nats)
        .gather()
        .stage(stages.sum_up, nats=others)
    )
    with pipeline:
        assert pipeline.map([1, 2, 3]) == [(2 * n, sum(range(10, 10 + 2 * n))) for n in (1, 2, 3)]


def test_stages_do_not_share_workers():
    pipeline = gangline.Pipeline().stage(stages.double, nats=NO_BROKER)
    with pytest.raises(ValueError, match="stages double and echo have the workers of one namespace"):
        pipeline.stage(stages.echo, nats=NO_BROKER)


def test_calls_and_tasks_are_answered(nats, worker):
    worker()
    with gangline.Service(None, tasks.square, nats=nats, queue=8) as service:
        assert service(3) == 9
        assert service.submit(4).result(PATIENCE) == 16
        assert asyncio.run(service.acall(5)) == 25


def test_a_journal_leaves_out_what_is_done(nats, worker, tmp_path):
    worker()
    options = {"nats": nats, "journal": tmp_path / "run.journal"}
    with gangline.Pool(None, tasks.square, **options) as pool:
        assert pool.map(range(5)) == [0, 1, 4, 9, 16]
    with gangline.Pool(None, tasks.square, resume=True, **options) as pool:
        assert [record.value for record in pool.imap(range(7))] == [25, 36]


def test_another_copy_of_a_module_is_refused_with_both_versions(nats, worker, tmp_path, run):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder, version in ((ours, "1.2"), (theirs, "1.3")):
        folder.mkdir()
        (folder / "copied.py").write_text(f"__version__ = '{version}'\ndef work(_, x): return x\n")
    worker(path=os.pathsep.join([PATHS, str(theirs)]))
    ended = run(
        f"""
        import sys
        sys.path.insert(0, {str(ours)!r})
        import copied, gangline
        nats = gangline.Nats({nats._url!r}, namespace={nats.namespace!r}, wait_for=3)
        try:
            with gangline.Pool(None, copied.work, nats=nats) as pool:
                pool.map([1])
        except gangline.NoWorkers as error:
            assert "this worker has version 1.3 of copied, and the driver version 1.2" in str(error), error
        else:
            raise AssertionError("it was served")
        """
    )
    assert (ended.stdout, ended.stderr) == ("ok\n", "")


def test_copies_without_a_version_are_told_apart_by_their_source(tmp_path, monkeypatch):
    from gangline._nats import version_of

    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "unversioned.py").write_text("def work(_, x): return x\n")
    __import__("unversioned")
    first = version_of("unversioned")
    (tmp_path / "unversioned.py").write_text("def work(_, x): return -x\n")
    assert first.startswith("the source ")
    assert version_of("unversioned") != first
    assert version_of("json") is None
    assert version_of("gangline") is None
    assert version_of("pytest") == f"version {pytest.__version__}"


def test_a_worker_serves_one_module_only(nats, worker):
    worker(serve="python:tasks")
    with gangline.Pool(None, tasks.echo, nats=nats) as pool:
        plain = [1, "a", b"b", None, [2.5, {"c": (True,)}]]
        assert pool.map(plain) == plain
        (record,) = pool.imap([Point(1)])
        assert "this worker takes plain values only, and was sent a test_nats.Point" in record.error


@pytest.mark.parametrize(
    ("work", "named"),
    [
        (len, "builtins.len"),
        (os.getpid, "posix.getpid"),
        (lambda _, x: x, "was sent a REDUCE"),
        (Point, "test_nats"),
    ],
)
def test_functions_of_other_modules_are_refused(broker, nats, worker, work, named):
    worker(serve="python:tasks")
    short = gangline.Nats(broker, namespace=nats.namespace, wait_for=3)
    with gangline.Pool(None, work, nats=short) as pool, pytest.raises(gangline.NoWorkers) as raised:
        pool.map([1])
    assert "this worker serves functions of tasks only" in str(raised.value)
    assert named in str(raised.value)


class Calls:
    """Is a call of a served function, once it is rebuilt."""

    def __reduce__(self):
        return tasks.square, (None, 3)


@pytest.mark.parametrize("sent", [Calls(), functools.partial(tasks.square, None), Point(1)])
@pytest.mark.parametrize("place", ["versions", "head", "functions"])
def test_a_worker_of_one_module_calls_nothing_that_it_was_not_asked_for(monkeypatch, sent, place):
    from gangline._nats import SERVED, NatsReceiver

    monkeypatch.setenv(SERVED, "python:tasks")
    head = (sys.version_info[:2], [], [], {})
    parts = {"versions": {}, "head": head, "functions": (None, tasks.square, None, None)}
    parts[place] = sent
    blob = b"".join(pickle.dumps(part, 5) for part in (*parts.values(), []))
    with pytest.raises(PermissionError, match="functions of tasks only, by their names"):
        NatsReceiver(base64.b64encode(blob).decode())


def test_a_pool_without_workers_says_so(broker, nats):
    short = gangline.Nats(broker, namespace=nats.namespace, wait_for=1)
    with gangline.Pool(None, tasks.square, nats=short) as pool, pytest.raises(gangline.NoWorkers) as raised:
        pool.map([1])
    assert "0 of at least 1 workers" in str(raised.value)


@pytest.mark.parametrize(
    "option",
    [
        {"gpus": "0"},
        {"workers": 2},
        {"devices": "cpu"},
        {"threads": 2},
        {"share": True},
        {"lock_gpus": True},
        {"max_restarts": 1},
        {"end_timeout": 1},
        {"backend": "threads"},
        {"start": "forkserver"},
        {"visible": "all"},
    ],
)
def test_options_of_one_machine_are_refused_by_name(option):
    (name,) = option
    for make in (
        lambda: gangline.Pool(None, tasks.square, nats=NO_BROKER, **option),
        lambda: gangline.Pipeline().stage(tasks.square, nats=NO_BROKER, **option),
    ):
        with pytest.raises(ValueError, match=f"{name}=.* cannot be used with nats=") as raised:
            make()
        assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("option", [{"max_workers": 0}, {"wait_for": "soon"}, {"lease_time": -1}])
def test_wrong_options_of_a_broker_are_refused(option):
    (name,) = option
    with pytest.raises((ValueError, gangline.PoolError), match="at least 0 seconds" if name == "lease_time" else name):
        gangline.Nats("nats://127.0.0.1:1", **option)


@pytest.mark.parametrize("option", [{"lease_time": "1ms"}, {"namespace": "a b"}, {"max_workers": 5000}])
def test_options_out_of_their_bounds_are_refused(option):
    (name,) = option
    named = "a b" if name == "namespace" else name
    pool = gangline.Pool(None, tasks.square, nats=gangline.Nats("nats://127.0.0.1:1", **option))
    with pool, pytest.raises(gangline.PoolError, match=named):
        pool.map([1])


@pytest.mark.parametrize(
    "url",
    [
        NO_BROKER,
        "nats://hunter2@127.0.0.1:1",
        "hunter2@127.0.0.1:1",
        "nats://me:hunt#er2@127.0.0.1:1",
        "nats://me:hunter2@127.0.0.1:99999",
        "nats://me:hunter2@",
        "nats://a:hunter2@127.0.0.1:1,nats://b:hunter2@127.0.0.1:2",
    ],
)
def test_no_text_has_the_password(url):
    pool = gangline.Pool(None, tasks.square, nats=url)
    with pool, pytest.raises(gangline.PoolError) as raised:
        pool.map([1])
    for text in (str(raised.value), repr(raised.value), repr(pool), repr(gangline.Nats(url)), repr(pool._options)):
        assert "hunt" not in text, text


def test_a_driver_that_is_killed_leaves_its_workers_to_others(nats, worker, script, tmp_path):
    gates = Gates(tmp_path)
    process = worker("cpu")
    killed = script(
        textwrap.dedent(
            f"""
            import gangline, tasks
            nats = gangline.Nats({nats._url!r}, namespace={nats.namespace!r}, lease_time=1)
            with gangline.Pool(None, tasks.hold, nats=nats) as pool:
                pool.map([{gates.item("a")!r}])
            """
        ),
        env={**os.environ, "PYTHONPATH": PATHS},
    )
    gates.await_begun("a")
    killed.kill()
    killed.wait()
    # The task itself never ends.
    with gangline.Pool(None, tasks.square, nats=nats) as pool:
        assert pool.map([7]) == [49]
    assert process.poll() is None
