"""Functions of a notebook's cells."""

import pytest

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
    nbclient.NotebookClient(notebook, timeout=50, kernel_name="python3").execute()
    assert notebook.cells[2].outputs[0].text == "[0, 3, None, 9] ValueError: two\n"
