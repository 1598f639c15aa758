"""What type checkers infer of the package, as its users have it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import HERE, PATIENCE

from gangline import Executor, Pool, Service
from gangline._types import ExecutorOptions, PoolOptions, ServiceOptions

PROGRAM = HERE / "typed" / "calls.py"


def run(*arguments, folder):
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        capture_output=True,
        text=True,
        # Elsewhere than in the folder of the package, which would be found before the one that is installed.
        cwd=folder,
        # Where pyright looks for Python and its packages.
        env={**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])},
        timeout=PATIENCE,
        check=False,
    )


@pytest.fixture
def pyright(tmp_path):
    """Return a function that runs pyright. Its package fetches the program, which may be impossible."""
    pytest.importorskip("pyright")
    if run("pyright", "--version", folder=tmp_path).returncode != 0:
        pytest.skip("pyright cannot be started here: it fetches a program at its first use")
    return lambda *arguments: run("pyright", *arguments, folder=tmp_path)


def test_mypy_infers_the_types_of_calls(tmp_path):
    pytest.importorskip("mypy")
    pytest.importorskip("numpy")
    cache = str(tmp_path / "cache")
    ended = run("mypy", "--strict", "--config-file=", "--cache-dir", cache, str(PROGRAM), folder=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_pyright_infers_the_types_of_calls(pyright, tmp_path):
    pytest.importorskip("numpy")
    copy = tmp_path / PROGRAM.name
    copy.write_text(PROGRAM.read_text())
    ended = pyright(str(copy))
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_all_public_types_are_known(pyright):
    ended = pyright("--verifytypes", "gangline", "--ignoreexternal")
    assert "Type completeness score: 100%" in ended.stdout, ended.stdout + ended.stderr


def test_the_options_of_types_are_those_that_are_taken():
    pool = set(Pool.__init__.__annotations__) - {"load", "work", "return"}
    assert set(PoolOptions.__annotations__) == pool - {"finish", "end", "batch"}
    of_pools = {"order", "window", "journal", "resume", "progress"}
    assert set(ServiceOptions.__annotations__) == set(PoolOptions.__annotations__) - of_pools
    executor = set(Executor.__init__.__annotations__) - {"return", "options"}
    assert set(ExecutorOptions.__annotations__) == set(ServiceOptions.__annotations__) - executor - {
        "batch_wait",
        "key",
    }
    for option in of_pools:
        with pytest.raises(TypeError, match=f"a service has no {option}"):
            Service(None, len, **{option: None})
