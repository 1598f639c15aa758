"""Segment micrographs with an ONNX model on all cores or GPUs: the masks of all go into one OME-Zarr 0.5 group.

pip install ./python mrcfile 'zarr>=3' onnx onnxruntime        # with GPUs: onnxruntime-gpu; Python 3.11 or later
python micrographs.py make made                                # micrographs, one of them broken, and a small model
python micrographs.py run made/model.onnx masks.zarr made/*.mrc    # again: only those that are not in masks.zarr
"""

import argparse
import functools
import hashlib
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import mrcfile
import numpy as np
import onnxruntime
import zarr

import gangline


def load(model: str, context: gangline.Context) -> onnxruntime.InferenceSession:
    """Load the model, once in each worker. A worker sees its own GPU only."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = context.threads
    provider = "CUDAExecutionProvider" if context.gpus else "CPUExecutionProvider"
    session = onnxruntime.InferenceSession(model, options, providers=[provider])
    if provider not in session.get_providers():  # ONNX Runtime only warns, and takes the CPU.
        raise RuntimeError(f"ONNX Runtime cannot use {context.device}: is onnxruntime-gpu installed, and a GPU there?")
    return session


def segment(out: Path, scale: float, session: onnxruntime.InferenceSession, path: str) -> dict[str, Any]:
    """Read a micrograph, write the smaller image and its mask, and return the rest of its record."""
    with mrcfile.open(path) as file, np.errstate(all="ignore"):
        data, lengths = file.data, [float(file.voxel_size[axis]) * scale for axis in "yx"]
    if data.ndim != 2 or np.iscomplexobj(data) or not 0 < float(data.max()) - float(data.min()) < 1e18:
        raise ValueError(f"{data.dtype} of shape {data.shape}: an image of real numbers that differ is needed")
    image, pixel = rescale(data.astype(np.float32), scale), lengths if all(0 < it < 1e9 for it in lengths) else None
    mask = np.array(session.run([], {"image": ((image - image.mean()) / image.std())[None, None]})[0][0, 0] > 0.5, "u1")
    # The group appears under its name when it is complete, so a name in the group is a micrograph that is done.
    part, whole = out / f".{Path(path).stem}.part", out / Path(path).stem
    write(zarr.open_group(part, mode="w", zarr_format=3), image, mask, pixel)
    part.rename(whole)
    return {"shape": image.shape, "angstrom": pixel, "covered": round(float(mask.mean()), 4)}


def rescale(image: np.ndarray, scale: float) -> np.ndarray:
    """Keep the low frequencies only, as SABER's FourierRescale2D does."""
    small = [int(side / scale) for side in image.shape]
    middle = tuple(slice(old // 2 - new // 2, old // 2 - new // 2 + new) for old, new in zip(image.shape, small))
    spectrum = np.fft.fftshift(np.fft.fft2(image))[middle]
    return (np.fft.ifft2(np.fft.ifftshift(spectrum)).real * (spectrum.size / image.size)).astype(np.float32)


def write(group: zarr.Group, image: np.ndarray, mask: np.ndarray, pixel: list[float] | None) -> None:
    """Write an image and, as its labels, the mask. The file of a micrograph need not say the size of a pixel."""
    axes = [{"name": name, "type": "space", **({"unit": "angstrom"} if pixel else {})} for name in "yx"]
    level = {"path": "0", "coordinateTransformations": [{"type": "scale", "scale": pixel or [1.0, 1.0]}]}
    image_of: dict[str, Any] = {"version": "0.5", "multiscales": [{"axes": axes, "datasets": [level]}]}
    labels = group.create_group("labels", attributes={"ome": {"version": "0.5", "labels": ["mask"]}})
    mask_of = {**image_of, "image-label": {"source": {"image": "../../"}}}
    for place, array, ome in ((group, image, image_of), (labels.create_group("mask"), mask, mask_of)):
        place.create_array("0", data=array, chunks=(512, 512), dimension_names=("y", "x"))
        place.attrs["ome"] = ome


def run(model: str, out: Path, files: list[str], scale: float, **places: Any) -> list[gangline.Record]:
    """Segment the micrographs that the group does not have yet, and print a line of JSON for each."""
    names = Counter(["OME", "zarr.json", *(Path(path).stem for path in files)])
    if twice := [name for name, count in names.items() if count > 1]:
        raise ValueError(f"{out} can have one {twice[0]}: rename micrographs, whose names are those in the group")
    settings: dict[str, Any] = {"model": hashlib.sha256(Path(model).read_bytes()).hexdigest(), "scale": scale}
    attributes: dict[str, Any] = {"ome": {"version": "0.5", "bioformats2raw.layout": 3}, "settings": settings}
    group = zarr.open_group(out, mode="a", zarr_format=3, attributes=attributes)
    if group.attrs.get("settings") != settings:
        raise ValueError(f"{out} has masks of another model or --scale: take another group")
    left = [path for path in files if not (out / Path(path).stem).exists()]
    records = []
    with gangline.Pool(functools.partial(load, model), functools.partial(segment, out, scale), **places) as pool:
        for record in pool.imap(left, keys=left):
            shown = record.value if record.ok else {"error": str(record.error).splitlines()[0]}
            print(json.dumps({"micrograph": record.key, "seconds": round(record.seconds, 3), **shown}), flush=True)
            records.append(record)
    ome = {"version": "0.5", "series": sorted(each.parent.name for each in out.glob("[!.]*/labels"))}
    zarr.open_group(out / "OME", mode="w", zarr_format=3, attributes={"ome": ome})
    return records


def particles(seed: int, side: int) -> tuple[np.ndarray, np.ndarray]:
    """Make a micrograph of dark discs in noise, and the mask of its discs."""
    random, mask = np.random.default_rng(seed), np.zeros((side, side), bool)
    disc = np.hypot(*np.ogrid[-18:19, -18:19]) < 18
    for y, x in random.integers(0, side - 37, (side * side // 8192, 2)):
        mask[y : y + 37, x : x + 37] |= disc
    return (random.normal(size=mask.shape) - 2.0 * mask).astype(np.float32), mask


def make(folder: Path, count: int, side: int) -> None:
    """Write micrographs, the last one truncated, and a model that compares the mean of 49 pixels with a threshold."""
    from onnx import parser, save

    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        mrcfile.write(folder / f"{number:03}.mrc", particles(number, side)[0], overwrite=True, voxel_size=1.5)
    os.truncate(last := folder / f"{count - 1:03}.mrc", last.stat().st_size // 2)
    model = parser.parse_model("""<ir_version: 8, opset_import: ["": 13]>
    particles (float[1, 1, y, x] image) => (float[1, 1, y, x] mask)
    { m = AveragePool <kernel_shape=[7,7], pads=[3,3,3,3]> (image)  mask = HardSigmoid <alpha=-9.0, beta=-4.0> (m) }""")
    save(model, folder / "model.onnx")


def main() -> int:
    """Run the command line; the exit status is 1 if a micrograph failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="command")
    making = commands.add_parser("make", help="write micrographs and a model")
    making.add_argument("folder", type=Path)
    making.add_argument("--count", type=int, default=12, help="how many micrographs")
    making.add_argument("--side", type=int, default=1024, help="pixels along a side")
    running = commands.add_parser("run", help="segment micrographs")
    running.add_argument("model")
    running.add_argument("out", type=Path, help="the group of masks, made if it does not exist")
    running.add_argument("files", nargs="+")
    running.add_argument("--scale", type=float, default=2.0, help="how many pixels become one, along a side")
    places = running.add_mutually_exclusive_group()
    places.add_argument("--gpus", help="a worker for each, such as 0-3")
    places.add_argument("--workers", type=int, default=os.cpu_count(), help="on the CPU, by default one for each core")
    args = parser.parse_args()
    if args.command == "make":
        make(args.folder, args.count, args.side)
        return 0
    if not args.scale >= 1:
        parser.error(f"--scale {args.scale}: must be at least 1")
    try:
        workers = None if args.gpus else args.workers
        records = run(args.model, args.out, args.files, args.scale, gpus=args.gpus, workers=workers)
    except (OSError, ValueError, gangline.PoolError) as error:
        sys.exit(f"error: {str(error).splitlines()[0]}")
    failed = [record.key for record in records if not record.ok]
    print(f"{len(records) - len(failed)} done, {len(args.files) - len(records)} done before, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
