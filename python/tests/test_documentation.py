"""The examples of docstrings and of the page run."""

import doctest
import importlib
import json
import pkgutil
import re
import subprocess
import sys

import pytest
from conftest import HERE, PATIENCE

import gangline

PAGE = (HERE.parent / "README.md").read_text()
# The one with a broker is run in `test_nats`.
PROGRAMS = [code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "nats=" not in code]
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(gangline.__path__, "gangline.")
    if not module.name.endswith("_child")
)


@pytest.mark.parametrize("name", ["gangline", *MODULES])
def test_examples_of_docstrings(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_examples_of_the_page():
    examples = re.findall(r"```pycon\n(.*?)```", PAGE, re.DOTALL)
    assert examples
    for example in examples:
        test = doctest.DocTestParser().get_doctest(example, {}, "README.md", "README.md", 0)
        assert doctest.DocTestRunner().run(test).failed == 0


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_a_program_of_the_page_runs(number, tmp_path):
    """As it stands there. A worker has the messages of the program `gangline` on its standard input."""
    hello = {"gangline": 2, "worker": 0, "gpus": [], "threads": 1, "batch": 8}
    messages = [hello, {"items": [{"item": 7, "attempt": 1, "input": "a.mrc"}]}]
    script = tmp_path / "program.py"
    script.write_text(PROGRAMS[number])
    ended = subprocess.run(
        [sys.executable, script],
        cwd=tmp_path,
        input="".join(json.dumps(message) + "\n" for message in messages),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    # What comments say that it prints.
    for said in re.findall(r"# ([a-z]\.(?:tif 30|tif KeyError: 'c.tif'|svs: 306))", PROGRAMS[number]):
        assert said in ended.stdout
    if "gangline.worker(" in PROGRAMS[number]:
        assert '"output":50' in ended.stdout


def test_a_reader_finds_each_part_on_one_screen():
    parts = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    lines = {part.splitlines()[0]: len(part.splitlines()) for part in parts}
    for part in ("A pool", "A pipeline", "Calls", "Many machines"):
        assert lines[part] <= 60


def test_the_program_of_the_front_page_runs(tmp_path):
    page = (HERE.parent.parent / "README.md").read_text()
    [code] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    script = tmp_path / "first.py"
    script.write_text(code)
    subprocess.run([sys.executable, script], check=True, timeout=PATIENCE)


def test_the_signature_is_that_of_the_page():
    """Each option in the table of `Pool` is one that it has."""
    names = re.findall(r"^    ``(.*?)``  ", gangline.Pool.__doc__, re.MULTILINE)
    options = {name for entry in names for name in entry.split(", ")}
    assert options <= set(gangline.Pool.__init__.__annotations__)
