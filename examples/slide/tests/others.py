#!/usr/bin/env python3
"""Other programs and `slide`: it reads what they write, and they read what it writes.

usage: others.py write SLIDES FOLDER      into FOLDER/others and FOLDER/refused, and FOLDER/grey.onnx
       others.py slides SLIDES MAPS       what `slide make` and `slide run` wrote
       others.py others FOLDER MAPS       the maps of FOLDER/others, with grey.onnx and a cell for each pixel
       others.py refused FOLDER ERRORS    the errors for FOLDER/refused

Needs imagecodecs, jsonschema, numpy, onnx, openslide-python, openslide-bin, pyvips[binary], shapely and tifffile.
"""

import json
import pathlib
import sys

import jsonschema
import numpy as np
import onnx
import openslide
import pyvips
import shapely
import tifffile

# How much of each colour the model of grey.onnx takes: different shares, so that swapped colours show.
SHARES = (0.5, 0.3, 0.2)
TILE = {"tile": (240, 240)}

# A file by tifffile: how its array is made of a level, and how it is written.
TIFFFILE = {
    "deflate.tif": {"compression": "zlib"},
    "deflate-predictor.tif": {"compression": "zlib", "predictor": True},
    "lzw.tif": {"compression": "lzw"},
    "lzw-predictor.tif": {"compression": "lzw", "predictor": True},
    "packbits.tif": {"compression": "packbits"},
    "plain.tiff": {},
    "jpeg.tif": {"compression": "jpeg"},
    "jpeg-rgb.svs": {"compression": "jpeg", "compressionargs": {"outcolorspace": "rgb"}},
    "big.btf": {"compression": "zlib", "bigtiff": True},
    "motorola.tif": {"byteorder": ">", "compression": "zlib"},
    "levels.ome.tif": {"subifds": True},
    "levels.btf": {"subifds": True, "bigtiff": True},
    "levels-motorola.tif": {"subifds": True, "byteorder": ">"},
    "wide-tiles.tif": {"tile": (48, 1024)},
    "small-tiles.tif": {"tile": (16, 16), "compression": "zlib"},
    "one-tile.tif": {"tile": (2048, 2048), "compression": "lzw"},
    "planes.tif": {"planarconfig": "separate", "compression": "zlib"},
    "transparent.tif": {"extrasamples": ["unassalpha"]},
    "deep.tif": {"dtype": np.uint16, "compression": "lzw", "predictor": True},
    "deep-planes.tif": {"dtype": np.uint16, "planarconfig": "separate", "byteorder": ">"},
    "floats.tif": {"dtype": np.float32, "compression": "zlib"},
    "floats-predictor.tif": {"dtype": np.float32, "compression": "zlib", "predictor": True},
}

# A file by libvips.
VIPS = {
    "vips-jpeg.tif": {"compression": "jpeg", "Q": 75},  # With fewer pixels of colour than of brightness.
    "vips-jpeg-fine.tif": {"compression": "jpeg", "Q": 95},
    "vips-lzw.tif": {"compression": "lzw", "predictor": "horizontal"},
    "vips-deflate.tif": {"compression": "deflate", "predictor": "none"},
    "vips-plain.tif": {"compression": "none"},
    "vips-big.btf": {"compression": "jpeg", "bigtiff": True, "tile_width": 512, "tile_height": 512},
    "vips-subifd.tif": {"compression": "deflate", "subifd": True},
    "vips-odd.tif": {"compression": "lzw", "tile_width": 80, "tile_height": 144},
}

# Files whose pages have no usual order: for each page the factor of the level, or the shape of another image, and how it
# is written. `below` are factors of levels in its SubIFDs.
LABEL, TALL, WIDE = (400, 400), (1000, 300), (200, 1200)
STRIPS = {"tile": None, "rowsperstrip": 16}
ARRANGED = {
    "small-first.tif": [(16, {}), (4, {}), (1, {})],
    "shuffled.btf": [(4, {}), (1, {}), (16, {}), (2, {})],
    "small-first-reduced.tif": [(4, {"subfiletype": 1}), (1, {"subfiletype": 1})],
    "one-level.tif": [(1, {})],
    "down-to-a-pixel.tif": [(1, {})] + [(2**n, {}) for n in range(1, 11)],
    "label-first.tif": [(LABEL, {}), (1, {}), (4, {})],
    "label-last.tif": [(1, {}), (4, {}), (LABEL, {})],
    "label-beside-one-level.tif": [(LABEL, {}), (1, {})],
    "label-with-its-name.tif": [((275, 275), {"description": "Label Image"}), (1, {})],
    "label-of-aperio.svs": [(1, {}), (LABEL, STRIPS), (4, {}), ((275, 275), {"description": "Aperio v1\nlabel 275x275"})],
    "large-label-with-its-name.tif": [((1500, 1500), {"description": "label", "subfiletype": 1}), (1, {}), (4, {})],
    "large-macro.tif": [(1, {}), ((1500, 1500), {"subfiletype": 9}), (4, {"subfiletype": 1})],
    "mask.tif": [(1, {}), ((550, 550), {"description": "Probability_Image"})],
    "tall-label.tif": [(TALL, {}), (1, {}), (4, {})],
    "wide-label.btf": [(4, {}), (WIDE, {"subfiletype": 1}), (1, {})],
    "thumbnails-first.tif": [(8, STRIPS), (16, STRIPS), (1, {}), (4, {})],
    "below-the-second.tif": [(LABEL, {}), (1, {"below": (16, 4)})],
    "below-a-small-one.btf": [(4, {"below": (1, 2)}), (TALL, {})],
    "of-a-slide-with-words.tif": [(1, {"description": "scan without label and macro image of a slide"}), (4, {})],
}

# Files that have a tag twice: its number, and the second value.
DOUBLED = {
    "description.tif": (270, "another"),
    "software.tif": (305, "another"),
    "width.tif": (256, 3),
    "bits.btf": (258, 1),
    "tile-width.tif": (322, 7),
    "compression-motorola.tif": (259, 1),
    "sub-ifds.tif": (330, 3),
}

# A file that is refused, and what its error says of it.
REFUSED = {
    "grey.tif": ({"photometric": "minisblack"}, "MinIsBlack"),
    "whole-32.tif": ({"dtype": np.uint32}, "unsigned numbers of 32 bits"),
    "signed.tif": ({"dtype": np.int16}, "signed numbers of 16 bits"),
    "half.tif": ({"dtype": np.float16}, "floats of 16 bits"),
    "strips.tif": ({"tile": None, "rowsperstrip": 16}, "no page is tiled"),
    "zstd.tif": ({"compression": "zstd"}, "ZSTD"),
    "webp.tif": ({"compression": "webp"}, "WebP"),
    "jpeg2000.tif": ({"compression": "jpeg2000"}, "34712"),
}


def levels_of(path):
    return [page.asarray() for page in tifffile.TiffFile(path).pages]


def in_form(level, kind):
    """A level as an array of the kind's type and shape, without loss."""
    dtype = kind.get("dtype", np.uint8)
    if kind.get("photometric") == "minisblack":
        return level[..., 0]
    if "extrasamples" in kind:
        level = np.dstack([level, np.full(level.shape[:2], 255, np.uint8)])
    if np.issubdtype(dtype, np.floating):
        level = level.astype(dtype) / dtype(255)
    elif dtype != np.uint8:
        level = level.astype(dtype) * (257 if dtype == np.uint16 else 1)
    return np.moveaxis(level, -1, 0) if kind.get("planarconfig") == "separate" else level


def write_tifffile(path, levels, kind):
    how = {key: kind[key] for key in ("bigtiff", "byteorder") if key in kind}
    own = ("bigtiff", "byteorder", "dtype", "subifds")
    page = {**TILE, "photometric": "rgb", **{key: value for key, value in kind.items() if key not in own}}
    with tifffile.TiffWriter(path, **how) as file:
        for number, level in enumerate(levels):
            more = {"subifds": len(levels) - 1} if kind.get("subifds") and number == 0 else {}
            file.write(in_form(level, kind), subfiletype=int(number > 0), metadata=None, **page, **more)
            if number == 0 and path.suffix == ".svs":  # A thumbnail in strips, as scanners write it.
                file.write(level[::8, ::8], photometric="rgb", rowsperstrip=16, metadata=None)


def write_arranged(path, levels, pages):
    with tifffile.TiffWriter(path, bigtiff=path.suffix == ".btf") as file:
        for kind, how in pages:
            factor, *below = [kind, *how.get("below", ())]
            how = {**TILE, "photometric": "rgb", "metadata": None, **{key: how[key] for key in how if key != "below"}}
            more = {"subifds": len(below)} if below else {}
            if isinstance(kind, tuple):
                file.write(np.full((*kind, 3), 250, np.uint8), **how)
                continue
            file.write(levels[0][::factor, ::factor], **how, **more)
            for factor in below:
                file.write(levels[0][::factor, ::factor], **how)


def write_doubled(path, levels, tag, second):
    how = {"bigtiff": path.suffix == ".btf", "byteorder": ">" if "motorola" in path.name else "<"}
    # With a number that is free, until it is known where it is.
    entry = (65000, "s", 0, second, True) if isinstance(second, str) else (65000, "I", 1, second, True)
    with tifffile.TiffWriter(path, **how) as file:
        file.write(
            levels[0], description="one", software="one", compression="zlib", photometric="rgb", metadata=None,
            subifds=1, extratags=[entry], **TILE,
        )  # fmt: skip
        file.write(levels[1], photometric="rgb", metadata=None, **TILE)
    with tifffile.TiffFile(path) as file:
        place = file.pages[0].tags[65000].offset
    with open(path, "r+b") as file:
        file.seek(place)
        file.write(tag.to_bytes(2, "big" if how["byteorder"] == ">" else "little"))
    with tifffile.TiffFile(path) as file:
        assert len(file.pages[0].tags.getall(tag)) == 2, path


def write(slides, folder):
    levels = levels_of(slides / "slide-000.tif")
    for name in ("others", "refused"):
        (folder / name).mkdir(parents=True)
    for name, kind in TIFFFILE.items():
        write_tifffile(folder / "others" / name, levels, kind)
    image = pyvips.Image.new_from_array(levels[0])
    for name, kind in VIPS.items():
        image.tiffsave(str(folder / "others" / name), tile=True, pyramid=True, **kind)
    for name, pages in ARRANGED.items():
        write_arranged(folder / "others" / name, levels, pages)
    for name, (tag, second) in DOUBLED.items():
        write_doubled(folder / "others" / f"doubled-{name}", levels, tag, second)
    for name, (kind, _) in REFUSED.items():
        write_tifffile(folder / "refused" / name, levels, kind)
    write_grey(folder / "grey.onnx")


def write_grey(path):
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 13]>
    grey (float[N, 3, y, x] tiles) => (float[N, 1, y, x] probability) { probability = Conv (tiles, shares) }""")
    shares = onnx.helper.make_tensor("shares", onnx.TensorProto.FLOAT, [1, 3, 1, 1], SHARES)
    model.graph.initializer.append(shares)
    onnx.save(model, path)


def check_slides(slides, maps):
    onnx.checker.check_model(str(slides / "model.onnx"), full_check=True)
    path = slides / "slide-000.tif"
    levels, scanned = levels_of(path), openslide.OpenSlide(path)
    assert scanned.level_dimensions == tuple(level.shape[1::-1] for level in levels) and len(levels) > 1
    for number, level in enumerate(levels):
        region = np.asarray(scanned.read_region((0, 0), number, level.shape[1::-1]).convert("RGB"))
        assert (level == region).all(), f"OpenSlide, level {number}"
        assert (level == pyvips.Image.new_from_file(str(path), page=number).numpy()).all(), f"libvips, level {number}"
    path = maps / "slide-000.tif.map.tif"
    found = tifffile.imread(path)
    assert found.max() > 240 and json.loads(tifffile.TiffFile(path).pages[0].description)["downsample"] == 16
    assert (found == pyvips.Image.new_from_file(str(path)).numpy()).all()
    scanned = openslide.OpenSlide(path)
    assert scanned.dimensions == found.shape[::-1]
    assert (np.asarray(scanned.read_region((0, 0), 0, scanned.dimensions).convert("L")) == found).all(), "OpenSlide"
    schema = json.loads(pathlib.Path(__file__).with_name("qupath.schema.json").read_text())
    for path in sorted(maps.glob("*.geojson")):
        areas = json.loads(path.read_text())
        jsonschema.validate(areas, schema)
        # Java's reader, unlike shapely, closes no ring.
        rings = [ring for feature in areas["features"] for ring in feature["geometry"]["coordinates"]]
        assert all(ring[0] == ring[-1] for ring in rings), f"{path}: a ring is open"
        shapes = [shapely.geometry.shape(feature["geometry"]) for feature in areas["features"]]
        assert len(shapes) == 6 and all(shape.is_valid for shape in shapes), path
        assert abs(shapely.union_all(shapes).area - sum(shape.area for shape in shapes)) < 1, f"{path}: they overlap"
        width, height = openslide.OpenSlide(slides / path.name.removesuffix(".geojson")).dimensions
        assert all(shapely.box(0, 0, width, height).contains(shape) for shape in shapes), path
    check_schema(schema, areas)
    print("slides, maps and areas are read by tifffile, OpenSlide, libvips and shapely, and are as QuPath's schema")


def check_schema(schema, areas):
    """Makes the mistakes that QuPath does not forgive in areas. The schema has to find each."""
    mistakes = {
        "the type of the file": lambda it: it.update(type="Features"),
        "no geometry": lambda it: it["features"][0].pop("geometry"),
        "a class without a color": lambda it: it["features"][0]["properties"]["classification"].pop("color"),
        "a class without a name": lambda it: it["features"][0]["properties"]["classification"].pop("name"),
        "a color of two": lambda it: it["features"][0]["properties"]["classification"]["color"].pop(),
        "a color as text": lambda it: it["features"][0]["properties"]["classification"].update(color="red"),
        "the color of version 0.3": lambda it: it["features"][0]["properties"]["classification"].update(colorRGB=1),
        "a measurement that is no number": lambda it: it["features"][0]["properties"]["measurements"].update(mean=None),
        "measurements of version 0.3": lambda it: it["features"][0]["properties"].update(measurements=[]),
        "an unknown property": lambda it: it["features"][0]["properties"].update(object_type="annotation"),
        "an unknown type of objects": lambda it: it["features"][0]["properties"].update(objectType="area"),
        "a ring of three": lambda it: it["features"][0]["geometry"]["coordinates"].append([[0, 0], [1, 0], [0, 0]]),
        "a point with a text": lambda it: it["features"][0]["geometry"]["coordinates"][0].append(["1", 2]),
    }
    for name, mistake in mistakes.items():
        wrong = json.loads(json.dumps(areas))
        mistake(wrong)
        assert not jsonschema.Draft202012Validator(schema).is_valid(wrong), f"the schema does not find {name}"


def check_others(folder, maps):
    for name, kind in {**TIFFFILE, **VIPS}.items():
        path = folder / "others" / name
        pixels = tifffile.TiffFile(path).pages[0].asarray()
        if kind.get("planarconfig") == "separate":
            pixels = np.moveaxis(pixels, 0, -1)
        if pixels.dtype == np.uint16:
            pixels = pixels >> 8
        largest = 1 if pixels.dtype == np.float32 else 255
        wanted = np.rint(pixels[..., :3].astype(np.float32) / largest @ np.float32(SHARES) * 255).astype(int)
        found = tifffile.imread(maps / f"{name}.map.tif").astype(int)
        seen = found > 0
        apart = int(abs(found - wanted)[seen].max())
        print(f"{name}: at most {apart} of 255 apart in {seen.mean():.0%} of the slide")
        # Decoders of JPEG may round differently. The others differ in the rounding of halves only.
        assert found.shape == wanted.shape and seen.mean() > 0.4 and apart <= (6 if "jpeg" in str(kind) else 1), name
    # All show the picture of this one.
    wanted = tifffile.imread(maps / "one-level.tif.map.tif").astype(int)
    for name in [*ARRANGED, *(f"doubled-{name}" for name in DOUBLED)]:
        found = tifffile.imread(maps / f"{name}.map.tif").astype(int)
        assert found.shape == wanted.shape, (name, found.shape)
        both = (found > 0) & (wanted > 0)
        print(f"{name}: in {(found > 0).mean():.0%} of the slide")
        assert both.mean() > 0.4 and (found == wanted)[both].all(), name


def check_refused(errors):
    said = errors.read_text().splitlines()
    for name, (_, found) in REFUSED.items():
        lines = [line for line in said if name in line]
        assert any(found in line and ("is needed" in line or "convert" in line) for line in lines), (name, lines)
        print(lines[0])


if __name__ == "__main__":
    command, *paths = sys.argv[1], *map(pathlib.Path, sys.argv[2:])
    {"write": write, "slides": check_slides, "others": check_others, "refused": lambda _, it: check_refused(it)}[command](*paths)
