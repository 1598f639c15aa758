"""What all tests need: functions for workers, scripts, and a look at what is left behind."""

import os
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from pathlib import Path

import pytest

import gangline

HERE = Path(__file__).parent
# Seconds: much longer than any wait that ends, on a busy machine.
PATIENCE = 120
# For programs of tests: the helpers beside this file, and the package that is tested.
PATHS = os.pathsep.join([str(HERE), str(Path(gangline.__file__).parents[1])])
sys.path.insert(0, str(HERE))
# A shell ignores it for what it starts in the background, and what that starts would inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def processes(tag):
    """Return the processes that have inherited the tag of this test."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if tag.encode() in (folder / "environ").read_bytes() and "Z" not in state(folder):
                found.append(int(folder.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


def state(folder):
    return (folder / "stat").read_text().rsplit(")", 1)[1].split()[0]


def wait_until(holds):
    """Look again until it holds. Nothing reports the end of a process that is not a child."""
    end = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


@pytest.fixture(autouse=True)
def tag(monkeypatch):
    """Fail a test that leaves a process, and end it."""
    tag = f"GANGLINE_TEST={uuid.uuid4()}"
    monkeypatch.setenv(*tag.split("="))
    yield tag
    are_gone = wait_until(lambda: not processes(tag))
    left = processes(tag)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert are_gone, f"processes were left: {left}"


@pytest.fixture
def script(tmp_path):
    """Return a function that starts a text as a script, in a session of its own."""
    started = []

    def start(text, *arguments, name="script.py", **options):
        path = tmp_path / name
        path.write_text(text)
        process = subprocess.Popen(
            [sys.executable, str(path), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            cwd=tmp_path,
            **options,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def run(tmp_path):
    """Return a function that runs a text as the main program, in some way, until it has ended."""

    def run(text, *command, after="print('ok')", **options):
        text = f"from miniature import Failed, Pool\n{textwrap.dedent(text)}\n{after}\n"
        if not command:
            (tmp_path / "script.py").write_text(text)
            command = ("script.py",)
        elif command == ("-c",):
            command = ("-c", text)
        elif command == ("-",):
            options["input"] = text
        return subprocess.run(
            [sys.executable, *command],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=PATIENCE,
            check=False,
            # What is deprecated is an error in newer Pythons.
            env={**os.environ, "PYTHONPATH": PATHS, "PYTHONWARNINGS": "error::DeprecationWarning"},
            **options,
        )

    return run


@pytest.fixture
def check(run):
    """Return a function that runs a text whose assertions have to hold."""

    def check(text, *command, **options):
        ended = run(text, *command, **options)
        assert not ended.stderr, ended.stderr
        assert ended.stdout == "ok\n"

    return check


@pytest.fixture(params=["Asyncio", "Trio", "Anyio", "AnyioOnTrio"])
def library(request):
    """Return what runs tasks, with one of the libraries for them."""
    import loops

    return getattr(loops, request.param)()
