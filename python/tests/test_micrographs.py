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
    assert "can have one 000: rename micrographs" in ended.stderr.splitlines()[-1]
    for reserved in ("OME.mrc", "zarr.json.mrc"):
        ended = run(made, "run", "made/model.onnx", "masks.zarr", reserved)
        assert f"can have one {reserved[:-4]}: rename" in ended.stderr.splitlines()[-1]


def write_kinds(folder, particles):
    """Write micrographs of each kind that is read, and of each that is refused, with a part of its error."""
    folder.mkdir()
    image = particles(0, SIDE)[0]
    modes = {0: np.int8, 1: np.int16, 2: np.float32, 6: np.uint16, 12: np.float16}
    for mode, dtype in modes.items():
        mrcfile.write(folder / f"mode-{mode}.mrc", (image * 10 + 60).astype(dtype), voxel_size=1.5)
    for kind in (b"AGAR", b"CCP4", b"FEI1", b"SERI"):
        with mrcfile.new(folder / f"extended-{kind.decode()}.mrc", image) as file:
            file.set_extended_header(np.zeros(2048, "V1"))
            file.header.exttyp = kind
    for name in ("gzip", "bzip2"):
        mrcfile.new(folder / f"{name}.mrc", image, compression=name).close()
    with mrcfile.new(folder / "motorola.mrc") as file:
        file.set_data(image.astype(">f4"))
    with mrcfile.new(folder / "oblong.mrc", image[:255, :166]) as file:
        file.voxel_size = (1.5, 3, 0)
    with mrcfile.new(folder / "no-pixel.mrc", image) as file:
        file.header.mx = 0
    flat, wrong, wide = np.full_like(image, 0.1), image.copy(), image * np.float32(1e30)
    wrong[5, 5] = np.nan
    of_data = "an image of real numbers that differ is needed"
    refused = dict.fromkeys(("flat", "nan", "wide", "transform", "stack", "volume"), of_data)
    for name, data in {"flat": flat, "nan": wrong, "wide": wide, "transform": image * np.complex64(1j)}.items():
        mrcfile.write(folder / f"{name}.mrc", data)
    for name in ("stack", "volume"):
        with mrcfile.new(folder / f"{name}.mrc", np.stack([image] * 3)) as file:
            file.set_volume() if name == "volume" else file.set_image_stack()
    whole = (folder / "mode-2.mrc").read_bytes()
    for name, data, error in (
        ("empty", b"", "Couldn't read enough bytes for MRC header"),
        ("half-header", whole[:500], "Couldn't read enough bytes for MRC header"),
        ("header", whole[:1024], "could only read 0"),
        ("text", b"not a micrograph\n" * 200, "not an MRC file"),
        ("truncated", whole[: len(whole) // 2], "bytes in data block"),
    ):
        (folder / f"{name}.mrc").write_bytes(data)
        refused[name] = error
    return refused


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_micrographs_of_each_kind_are_read_or_refused_by_name(made, particles):
    refused = write_kinds(made / "kinds", particles)
    files = sorted(f"kinds/{path.name}" for path in (made / "kinds").glob("*.mrc"))
    ended = run(made, "run", "made/model.onnx", "kinds.zarr", *files, "--workers", "2")
    *lines, last = ended.stdout.splitlines()
    records = {record.pop("micrograph")[6:-4]: record for record in map(json.loads, lines)}
    assert last == f"{len(files) - len(refused)} done, 0 done before, {len(refused)} failed"
    group = zarr.open_group(made / "kinds.zarr", mode="r")
    for name, record in records.items():
        assert ("error" in record) == (name in refused), (name, record)
        assert refused.get(name, "") in record.get("error", ""), (name, record)
        assert (name in group) != (name in refused), name
    truth = group["mode-2/labels/mask/0"][:]
    for name in ("mode-12", "extended-FEI1", "gzip", "bzip2", "motorola", "no-pixel"):
        # A mode of fewer digits may move the edge of a disc by a pixel.
        assert (group[f"{name}/labels/mask/0"][:] != truth).mean() < 0.01, name
    assert (records["oblong"]["angstrom"], records["no-pixel"]["angstrom"]) == ([6.0, 3.0], None)
    (multiscale,) = group["oblong"].attrs["ome"]["multiscales"]
    assert multiscale["datasets"][0]["coordinateTransformations"] == [{"type": "scale", "scale": [6.0, 3.0]}]
    (multiscale,) = group["no-pixel"].attrs["ome"]["multiscales"]
    assert multiscale["axes"] == [{"name": "y", "type": "space"}, {"name": "x", "type": "space"}]


def test_masks_are_as_the_models_of_ome_zarr_have_them(made):
    models = pytest.importorskip("ome_zarr_models.v05", reason="ome-zarr-models cannot be installed here")
    from ome_zarr_models.v05.image_label import ImageLabel
    from ome_zarr_models.v05.labels import Labels

    segment(made)
    group = zarr.open_group(made / "masks.zarr", mode="r")
    models.BioFormats2Raw.from_zarr(group)
    for name in group["OME"].attrs["ome"]["series"]:
        models.Image.from_zarr(group[name])
        Labels.from_zarr(group[f"{name}/labels"])
        ImageLabel.from_zarr(group[f"{name}/labels/mask"])
