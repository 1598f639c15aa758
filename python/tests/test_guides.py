"""The Python programs on the pages for users of other tools run as they stand there, and assert what they print.

Those of the other tool run where it is installed. Programs of easycore also run with the import changed.
"""

import ast
import importlib.util
import os
import re
import subprocess
import sys

import pytest
from conftest import HERE, PATIENCE

PAGES = sorted((HERE.parent.parent / "docs").glob("from-*.md"))
EXAMPLES = HERE.parent / "examples"
EASYCORE = re.compile(r"(?<=^from )easycore\.(common\.(config|parallel)|torch\.parallel)\b", re.M)
# Modules that are in no package: the page's own, and stand-ins for what is large.
FOLDERS = [EXAMPLES, HERE / "stubs"]


def programs():
    """Yield the Python listings, each with a name."""
    for page in PAGES:
        for number, code in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S), 1):
            yield f"{page.stem}-{number}", code


def is_run_elsewhere(code):
    """Whether it is a worker that a command of the page starts, or a part of an example that `test_compat` runs."""
    return "gangline.worker(" in code or any(code in path.read_text() for path in EXAMPLES.glob("*.py"))


def imported(code):
    """Return the names of the modules that a program imports."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


def can_be_imported(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def run(code, folder):
    """Run a program, with stand-ins if it needs some, and return what it printed. It has to succeed."""
    environment = dict(os.environ)
    missing = [name for name in imported(code) if not can_be_imported(name)]
    if missing:
        environment["PYTHONPATH"] = os.pathsep.join(map(str, [*FOLDERS, os.environ.get("PYTHONPATH", "")]))
    with pytest.MonkeyPatch.context() as patch:
        for place in map(str, FOLDERS):
            patch.syspath_prepend(place)
        for name in missing:
            if not can_be_imported(name):
                pytest.skip(f"{name} is not installed")
    script = folder / "program.py"
    script.write_text(code)
    ended = subprocess.run(
        [sys.executable, script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def those(is_wanted):
    """Return the programs as parameters of a test."""
    return [pytest.param(code, id=name) for name, code in programs() if is_wanted(code)]


@pytest.mark.parametrize("code", those(lambda code: not is_run_elsewhere(code)))
def test_a_program_of_a_page_runs(code, tmp_path):
    assert "assert " in code or "print(" in code
    run(code, tmp_path)


@pytest.mark.parametrize("code", those(EASYCORE.search))
def test_a_program_of_easycore_prints_the_same_with_the_import_changed(code, tmp_path):
    ours = run(EASYCORE.sub("gangline.compat", code), tmp_path)
    assert ours
    if can_be_imported("easycore"):
        assert ours == run(code, tmp_path)
