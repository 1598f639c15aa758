"""The network of examples/candle/digits.rs, in Python 3.8 alone, so that it runs anywhere: with PyTorch it is a line."""

import array, json, math, operator, pathlib, struct


def load(path):  # safetensors: the length of a JSON header, the header, and the numbers themselves
    data = pathlib.Path(path).read_bytes()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    places = {k: v["data_offsets"] for k, v in json.loads(data[8:start]).items()}
    return {k: array.array("f", data[start + a : start + b]) for k, (a, b) in places.items()}


def dense(x, net, name):  # a row of weights for each output
    weights, n = net[name + ".weight"], len(x)
    rows = (weights[i : i + n] for i in range(0, len(weights), n))
    return [sum(map(operator.mul, row, x), bias) for row, bias in zip(rows, net[name + ".bias"])]


def conv(x, net, name, stride):  # 3 x 3, with a border of 0; x is one square image after another
    channels = len(net[name + ".weight"]) // len(net[name + ".bias"]) // 9
    side = math.isqrt(len(x) // channels)
    at = lambda c, i, j: x[(c * side + i) * side + j] if 0 <= i < side and 0 <= j < side else 0.0
    near = [(c, i, j) for c in range(channels) for i in (-1, 0, 1) for j in (-1, 0, 1)]
    spots = [(i, j) for i in range(0, side, stride) for j in range(0, side, stride)]
    cells = [dense([at(c, i + di, j + dj) for c, di, dj in near], net, name) for i, j in spots]
    return [max(0.0, cell[k]) for k in range(len(cells[0])) for cell in cells]


def read(pixels, net):
    x = conv(conv(pixels, net, "strokes", 1), net, "parts", 2)
    scores = dense([max(0.0, v) for v in dense(x, net, "hidden")], net, "scores")
    return scores.index(max(scores))
