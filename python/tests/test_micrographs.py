"""The example with micrographs: the libraries that users have read back what it writes."""

import importlib.util
import json
import subprocess
import sys

import pytest
from conftest import HERE, PATIENCE

needed = {
    name: pytest.importorskip(name, reason=f"{name} cannot be installed here")
    for name in ("numpy", "mrcfile", "zarr", "onnx", "onnxruntime")
}
np, mrcfile, zarr = (needed[name] for name in ("numpy", "mrcfile", "zarr"))

SCRIPT = HERE.parent / "examples/micrographs.py"
SIDE = 256


def run(folder, *arguments):
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False)


def segment(folder, *arguments, out="masks.zarr", status=1):
    """Return the records and the last line of a run over all micrographs."""
    files = sorted(f"made/{path.name}" for path in (folder / "made").glob("*.mrc"))
    ended = run(folder, "run", "made/model.onnx", out, *files, *arguments)
    assert (ended.returncode, ended.stderr) == (status, "")
    *records, last = ended.stdout.splitlines()
    return list(map(json.loads, records)), last


@pytest.fixture(scope="module")
def particles():
    spec = importlib.util.spec_from_file_location("micrographs", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.particles


@pytest.fixture
def made(tmp_path):
    ended = run(tmp_path, "make", "made", "--count", "6", "--side", str(SIDE))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    return tmp_path


def test_micrographs_are_segmented_once_and_a_broken_one_fails_alone(made, particles):
    # A worker that is killed while it writes leaves this behind.
    (made / "masks.zarr/.002.part/labels").mkdir(parents=True)
    records, last = segment(made, "--workers", "2")
    assert last == "5 done, 0 done before, 1 failed"
    assert [record["micrograph"] for record in records] == [f"made/{number:03}.mrc" for number in range(6)]
    assert records[5]["error"].startswith("ValueError: Expected 262144 bytes")

    segment(made, "--workers", "1", out="alone.zarr")
    alone = zarr.open_group(made / "alone.zarr", mode="r")
    group = zarr.open_group(made / "masks.zarr", mode="r")
    assert group.attrs["ome"] == {"version": "0.5", "bioformats2raw.layout": 3}
    assert group["OME"].attrs["ome"]["series"] == [f"{number:03}" for number in range(5)]
    for number in range(5):
        image, labels = group[f"{number:03}"], group[f"{number:03}/labels"]
        (multiscale,) = image.attrs["ome"]["multiscales"]
        with mrcfile.open(made / f"made/{number:03}.mrc") as file:
            pixel = float(file.voxel_size.x) * 2
        transformations = multiscale["datasets"][0]["coordinateTransformations"]
        assert transformations == [{"type": "scale", "scale": [pixel, pixel]}]
        assert image["0"].metadata.dimension_names == ("y", "x")
        assert labels.attrs["ome"]["labels"] == ["mask"]
        mask, truth = labels["mask/0"][:], particles(number, SIDE)[1][::2, ::2]
        assert (mask == alone[f"{number:03}/labels/mask/0"][:]).all()
        assert (mask.dtype, mask.shape, image["0"].shape) == (np.uint8, truth.shape, truth.shape)
        assert (mask & truth).sum() > 0.8 * (mask | truth).sum()

    records, last = segment(made, "--workers", "2")
    assert last == "0 done, 5 done before, 1 failed"
    assert [record["micrograph"] for record in records] == ["made/005.mrc"]

    with mrcfile.new(made / "made/005.mrc", particles(5, SIDE)[0], overwrite=True) as file:
        file.voxel_size = 1.5
    records, last = segment(made, "--workers", "2", status=0)
    assert last == "1 done, 5 done before, 0 failed"
    assert zarr.open_group(made / "masks.zarr", mode="r")["OME"].attrs["ome"]["series"][-1] == "005"


def test_a_group_takes_masks_of_one_model_and_scale_and_each_name_once(made):
    segment(made)
    ended = run(made, "run", "made/model.onnx", "masks.zarr", "made/000.mrc", "--scale", "4")
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].endswith("another model or --scale: take another group")
    ended = run(made, "run", "made/model.onnx", "masks.zarr", "made/000.mrc", "other/000.mrc")
    assert ended.returncode == 1
    assert "several micrographs have the name 000" in ended.stderr.splitlines()[-1]
