"""The examples of docstrings and of the page run."""

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys

import pytest
from conftest import HERE, PATIENCE

import gangline

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(gangline.__path__, "gangline.")
    if not module.name.endswith("_child")
)


@pytest.mark.parametrize("name", ["gangline", *MODULES])
def test_examples_of_docstrings(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_examples_of_the_page():
    page = (HERE.parent / "README.md").read_text()
    examples = re.findall(r"```pycon\n(.*?)```", page, re.DOTALL)
    assert examples
    for example in examples:
        test = doctest.DocTestParser().get_doctest(example, {}, "README.md", "README.md", 0)
        assert doctest.DocTestRunner().run(test).failed == 0


def test_code_of_the_page_compiles():
    page = (HERE.parent / "README.md").read_text()
    for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        compile(code, "README.md", "exec")


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
