#!/usr/bin/env python3
"""The job of `slide run` in Python: tifffile, ONNX Runtime and a ThreadPoolExecutor over the pieces of tissue.

usage: compare.py SLIDES OUTPUT [--workers N] [--batch N] [--level N] [--tile N] [--overlap PERCENT] [--cell N]

Compares its maps with those that `slide run` wrote into OUTPUT, with the same options. Prints the time of one worker
with single tiles, of the workers with single tiles and with batches in each piece, and of the model alone, on tiles in
memory.
"""

import argparse
import collections
import csv
import pathlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnxruntime
import tifffile


class Tiles:
    """Decoded tiles of one file, the latest first. As in the program, one thread decodes what several want."""

    def __init__(self, megabytes):
        self.room = megabytes << 20
        self.kept = collections.OrderedDict()
        self.lock = threading.Lock()

    def get(self, key, decode):
        with self.lock:
            entry = self.kept.setdefault(key, [threading.Lock(), None])
            self.kept.move_to_end(key)
        with entry[0]:
            if entry[1] is None:
                entry[1] = decode()
                with self.lock:
                    self.room -= entry[1].nbytes
                    while self.room < 0 and len(self.kept) > 1:
                        _, (_, old) = self.kept.popitem(last=False)
                        self.room += old.nbytes if old is not None else 0
            return entry[1]


class Slide:
    def __init__(self, path, cache):
        self.file = tifffile.TiffFile(path)
        self.pages = [page for page in self.file.pages if page.is_tiled]
        self.path, self.cache, self.lock = path, cache, threading.Lock()

    def tile(self, level, index):
        def decode():
            page = self.pages[level]
            with self.lock:
                self.file.filehandle.seek(page.dataoffsets[index])
                data = self.file.filehandle.read(page.databytecounts[index])
            pixels, _, shape = page.decode(data, index, jpegtables=page.jpegtables)
            return np.ascontiguousarray(pixels.reshape(shape[1:] if len(shape) == 4 else shape))

        return self.cache.get((self.path, level, index), decode)

    def square(self, level, x, y, side):
        page = self.pages[level]
        high, wide = page.tilelength, page.tilewidth
        across = -(-page.imagewidth // wide)
        square = np.full((side, side, 3), 255, np.uint8)
        right, bottom = min(x + side, page.imagewidth), min(y + side, page.imagelength)
        for row in range(y // high, -(-bottom // high)):
            for column in range(x // wide, -(-right // wide)):
                tile = self.tile(level, row * across + column)
                left, top = column * wide, row * high
                x0, x1, y0, y1 = max(x, left), min(right, left + wide), max(y, top), min(bottom, top + high)
                square[y0 - y : y1 - y, x0 - x : x1 - x] = tile[y0 - top : y1 - top, x0 - left : x1 - left]
        return square


def labels_of(cells):
    labels = np.zeros(cells.shape, np.int32)
    count = 0
    for first in zip(*np.nonzero(cells)):
        if labels[first]:
            continue
        count += 1
        labels[first], todo = count, [first]
        while todo:
            y, x = todo.pop()
            for at in ((y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)):
                inside = 0 <= at[0] < cells.shape[0] and 0 <= at[1] < cells.shape[1]
                if inside and cells[at] and not labels[at]:
                    labels[at] = count
                    todo.append(at)
    return labels, count


def otsu(values):
    histogram = np.bincount(values.ravel(), minlength=256)
    below, sums = np.cumsum(histogram), np.cumsum(histogram * np.arange(256))
    above = values.size - below
    both = (below > 0) & (above > 0)
    means = (sums[-1] - sums) / np.maximum(above, 1) - sums / np.maximum(below, 1)
    return int(np.argmax(np.where(both, below * 1.0 * above * means**2, 0)))


def pieces_of(slide, options):
    """The tiles of each piece of tissue."""
    last, page = slide.pages[-1], slide.pages[options.level]
    every = -(-max(last.imagewidth, last.imagelength) // 2048)
    pixels = last.asarray()[::every, ::every]
    colour = pixels.max(2) - pixels.min(2)
    cells = colour > max(otsu(colour), 24)
    labels, _ = labels_of(cells)
    labels, count = labels_of(cells & (np.bincount(labels.ravel())[labels] >= 12))
    step = every * slide.pages[0].imagewidth / last.imagewidth
    step /= slide.pages[0].imagewidth / page.imagewidth
    side, cell = options.tile, options.cell
    stride = max(side * (100 - options.overlap) // 100 // cell, 1) * cell
    pieces = []
    for label in range(1, count + 1):
        rows, columns = np.nonzero(labels == label)

        def corners(at, length):
            first = int(at.min() * step) // cell * cell
            end = min(int((at.max() + 1) * step), length)
            return [first + i * stride for i in range(-(-max(end - first - side, 0) // stride) + 1)]

        def has(x, y):
            low, left = int(y / step), int(x / step)
            return (labels[low : -int(-(y + side) // step), left : -int(-(x + side) // step)] == label).any()

        grid = [(x, y) for y in corners(rows, page.imagelength) for x in corners(columns, page.imagewidth)]
        pieces.append([(x, y) for x, y in grid if has(x, y)])
    return pieces


class Model:
    def __init__(self, path, cells, threads=1):
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(path, settings, onnxruntime.get_available_providers())
        self.name, self.cells = self.session.get_inputs()[0].name, cells

    def run(self, tiles):
        batch = np.stack(tiles).transpose(0, 3, 1, 2).astype(np.float32) / np.float32(255)
        values = self.session.run(None, {self.name: batch})[0][:, -1]
        factor = values.shape[1] // self.cells
        shape = (len(tiles), self.cells, factor, self.cells, factor)
        return np.rint(values.reshape(shape).mean((2, 4)) * 255).astype(np.uint32)


def predict(slide, pieces, model, options, workers, batch):
    """The map of a slide. Batches end with each piece, and threads share the model, as whole-slide predictors do."""
    page, cell, cells = slide.pages[options.level], options.cell, options.tile // options.cell
    shape = (-(-page.imagelength // cell) + cells, -(-page.imagewidth // cell) + cells)
    sums, weights = np.zeros(shape, np.uint32), np.zeros(shape, np.uint32)
    ramp = np.minimum(np.minimum(np.arange(1, cells + 1), np.arange(cells, 0, -1)), 8).astype(np.uint32)
    weight = np.outer(ramp, ramp)

    def work(piece):
        found = []
        for i in range(0, len(piece), batch):
            tiles = [slide.square(options.level, x, y, options.tile) for x, y in piece[i : i + batch]]
            found += zip(piece[i : i + batch], model.run(tiles))
        return found

    with ThreadPoolExecutor(workers) as pool:
        for found in pool.map(work, pieces):
            for (x, y), values in found:
                place = np.s_[y // cell : y // cell + cells, x // cell : x // cell + cells]
                sums[place] += weight * values
                weights[place] += weight
    return (sums // np.maximum(weights, 1))[: -cells or None, : -cells or None].astype(np.uint8)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("slides", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    defaults = {"workers": 4, "batch": 16, "level": 0, "tile": 256, "overlap": 25, "cell": 16, "cache": 128}
    for name, value in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    model = Model(options.slides / "model.onnx", options.tile // options.cell)
    with open(options.output / "slides.csv", newline="") as table:
        names = [row["slide"] for row in csv.DictReader(table)]

    def opened(cache):
        return {name: Slide(options.slides / name, cache) for name in names}

    # Not timed: a search for pieces of tissue in plain Python is slow, and no part of the comparison.
    pieces = {name: pieces_of(slide, options) for name, slide in opened(Tiles(options.cache)).items()}

    def all_slides(workers, batch):
        start, before = time.perf_counter(), time.process_time()
        slides = opened(Tiles(options.cache)).items()
        maps = {name: predict(slide, pieces[name], model, options, workers, batch) for name, slide in slides}
        lasted, computed = time.perf_counter() - start, time.process_time() - before
        print(f"workers: {workers}, batches of {batch}: {lasted:.2f} s, and {computed:.2f} s on all cores")
        return lasted, maps

    runs = [all_slides(1, 1), all_slides(options.workers, 1), all_slides(options.workers, options.batch)]
    times = [lasted for lasted, _ in runs]
    print(f"the others are {times[0] / times[1]:.2f} and {times[0] / times[2]:.2f} times as fast as the first")
    worst = 0
    for name in names:
        ours = tifffile.imread(options.output / f"{name}.map.tif").astype(int)
        worst = max(worst, *(np.abs(ours - maps[name]).max() for _, maps in runs))
    print(f"the largest difference between a map and that of `slide run`: {worst} of 255")

    slide = Slide(options.slides / names[0], Tiles(options.cache))
    corners = [corner for piece in pieces[names[0]] for corner in piece][: options.batch]
    tiles = [slide.square(options.level, x, y, options.tile) for x, y in corners]
    total = sum(len(piece) for name in names for piece in pieces[name])
    start, before, rounds = time.perf_counter(), time.process_time(), 5
    with ThreadPoolExecutor(options.workers) as pool:
        list(pool.map(model.run, [tiles] * rounds * options.workers))
    share = total / (rounds * options.workers * len(tiles))
    lasted, computed = (time.perf_counter() - start) * share, (time.process_time() - before) * share
    print(f"the model alone: {lasted:.2f} s, and {computed:.2f} s on all cores, for {total} tiles")


if __name__ == "__main__":
    main()
