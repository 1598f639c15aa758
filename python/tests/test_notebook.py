"""Functions of a notebook's cells."""

import pytest
from conftest import PATIENCE, processes, wait_until

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")
pytest.importorskip("cloudpickle")


def test_functions_of_cells_are_sent():
    cells = [
        "import gangline\nfactor = 3",
        "def work(state, x):\n    if x == 2:\n        raise ValueError('two')\n    return state * x",
        "with gangline.Pool(lambda context: factor, work, workers=2) as pool:\n"
        "    records = list(pool.imap(range(4)))\n"
        "print([record.value for record in records], records[2].error.splitlines()[0])",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(notebook, timeout=PATIENCE, kernel_name="python3").execute()
    assert notebook.cells[2].outputs[0].text == "[0, 3, None, 9] ValueError: two\n"


def test_an_interrupted_cell_leaves_no_process_and_the_next_one_runs(tag, tmp_path):
    from jupyter_client.manager import KernelManager

    manager = KernelManager()
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    started = tmp_path / "started"
    try:
        client.wait_for_ready(timeout=PATIENCE)
        cell = client.execute(
            f"""
import gangline, pathlib, time
def work(state, x):
    pathlib.Path({str(started)!r}).touch()
    time.sleep(1000)
with gangline.Pool(None, work, workers=2) as pool:
    pool.map(range(4))
""",
            # Otherwise a kernel aborts the requests that arrive about the time of an error,
            # and the next cell could be one of them.
            stop_on_error=False,
        )
        assert wait_until(started.exists)
        manager.interrupt_kernel()
        while (reply := client.get_shell_msg(timeout=PATIENCE))["parent_header"]["msg_id"] != cell:
            pass
        assert reply["content"].get("ename") == "KeyboardInterrupt"
        # The kernel itself is left.
        assert wait_until(lambda: len(processes(tag)) == 1)
        assert client.execute("1 + 1", reply=True, timeout=PATIENCE)["content"]["status"] == "ok"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_a_report_is_shown_with_its_own_style():
    cells = [
        "import gangline, operator",
        "with gangline.Pool(None, operator.is_, workers=1) as pool:\n    pool.map([None])\npool.report()",
        "pool",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(notebook, timeout=PATIENCE, kernel_name="python3").execute()
    data = notebook.cells[1].outputs[0].data
    assert data["text/html"].startswith('<div class="gangline-report">') and "<script" not in data["text/html"]
    assert data["text/plain"].startswith("<gangline.Report: 1 item in")


@pytest.mark.parametrize("has_tqdm", [True, False])
def test_progress_of_a_notebook(has_tqdm):
    if has_tqdm:
        pytest.importorskip("tqdm")
    cells = [
        "import sys, threading, gangline, operator",
        "" if has_tqdm else "sys.modules['tqdm'] = sys.modules['tqdm.auto'] = None",
        "before = threading.active_count()\n"
        "with gangline.Pool(None, operator.is_, workers=1, progress='Comparing') as pool:\n"
        "    for record in pool.imap([None, 1, 2]):\n"
        "        pass\n"
        "print(sorted(type(thread).__name__ for thread in threading.enumerate() if 'tqdm' in type(thread).__module__))",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(notebook, timeout=PATIENCE, kernel_name="python3").execute()
    texts = {"stdout": "", "stderr": ""}
    for output in notebook.cells[2].outputs:
        texts[output.name] += output.text
    assert texts["stdout"] == "[]\n"
    assert "Comparing: " in texts["stderr"] and "3/3" in texts["stderr"] and "Warning" not in texts["stderr"]
    assert ("|" in texts["stderr"]) == has_tqdm
