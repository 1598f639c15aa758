"""The networks of the example `gpu` in PyTorch, as people write it: a loop, a loop over a DataLoader, and
both compiled.

Reads job.json and weights.safetensors beside itself and writes vectors.bin. For each arrangement it prints
its name, waits for a line, measures, and prints the figures as JSON. It needs nothing but PyTorch.
"""

import array
import json
import math
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))

try:
    import torch
    import torch.nn.functional as F
except ImportError as error:
    print(f"missing {error}", flush=True)
    sys.exit(1)


def read_weights(path, device, dtype):
    """The tensors of a safetensors file whose numbers are all of four bytes, as numbers of a type."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        data = bytearray(file.read())
    tensors = {}
    for name, about in header.items():
        if name == "__metadata__":
            continue
        begin, end = about["data_offsets"]
        values = torch.frombuffer(data, dtype=torch.float32, count=(end - begin) // 4, offset=begin)
        tensors[name] = values.reshape(about["shape"]).to(device, dtype)
    return tensors


class Encoder(torch.nn.Module):
    def __init__(self, weights, network):
        super().__init__()
        self.weights = weights
        self.layers, self.heads = network["layers"], network["heads"]
        self.epsilon = network["epsilon"]

    def linear(self, name, x):
        return F.linear(x, self.weights[name + ".weight"], self.weights[name + ".bias"])

    def norm(self, name, x):
        weight, bias = self.weights[name + ".LayerNorm.weight"], self.weights[name + ".LayerNorm.bias"]
        return F.layer_norm(x, weight.shape, weight, bias, self.epsilon)

    def attention(self, name, x):
        texts, tokens, width = x.shape
        split = lambda y: y.view(texts, tokens, self.heads, width // self.heads).transpose(1, 2)
        query, key, value = (split(self.linear(f"{name}.{part}", x)) for part in ("query", "key", "value"))
        if hasattr(F, "scaled_dot_product_attention"):
            mixed = F.scaled_dot_product_attention(query, key, value)
        else:
            scores = query @ key.transpose(-1, -2) / math.sqrt(width // self.heads)
            mixed = scores.softmax(-1) @ value
        return mixed.transpose(1, 2).reshape(texts, tokens, width)

    def forward(self, ids):
        table = lambda name: self.weights[f"embeddings.{name}_embeddings.weight"]
        x = table("word")[ids] + table("token_type")[0] + table("position")[: ids.shape[1]]
        x = self.norm("embeddings", x)
        for layer in (f"encoder.layer.{i}" for i in range(self.layers)):
            mixed = self.attention(f"{layer}.attention.self", x)
            x = self.norm(f"{layer}.attention.output", self.linear(f"{layer}.attention.output.dense", mixed) + x)
            inner = F.gelu(self.linear(f"{layer}.intermediate.dense", x))
            x = self.norm(f"{layer}.output", self.linear(f"{layer}.output.dense", inner) + x)
        return F.normalize(x.float().mean(1), dim=1)


class Convolutions(torch.nn.Module):
    def __init__(self, weights, network):
        super().__init__()
        self.weights = weights
        self.layers, self.side = network["layers"], network["side"]

    def forward(self, pixels):
        of = lambda name: (self.weights[name + ".weight"], self.weights[name + ".bias"])
        x = pixels.view(-1, 3, self.side, self.side).to(self.weights["last.weight"].dtype) / 255
        for layer in range(self.layers):
            x = F.relu(F.conv2d(x, *of(f"layers.{layer}"), stride=2, padding=1))
        return F.normalize(F.linear(x.mean((2, 3)), *of("last")).float(), dim=1)


def tokens(text, vocabulary, most):
    """As `tokens` of examples/candle/common/words.rs."""
    ids = [1]
    for word in text.split()[: most - 2]:
        hashed = 0x811C9DC5
        for byte in word.encode():
            hashed = ((hashed ^ byte) * 0x01000193) & 0xFFFFFFFF
        ids.append(3 + hashed % (vocabulary - 3))
    return ids + [2]


def pixels(text, count):
    """As `pixels` of examples/candle/gpu/network.rs."""
    seed = 0
    for byte in text.encode():
        seed = (seed * 31 + byte) & 0xFFFFFFFF
    return (((seed + torch.arange(count) * 0x9E3779B1) & 0xFFFFFFFF) >> 24).to(torch.uint8)


def item(text, network):
    """What the network gets of a text."""
    if network["kind"] == "conv":
        return pixels(text, 3 * network["side"] ** 2)
    return torch.tensor(tokens(text, network["vocabulary"], network["tokens"]))


class Items(torch.utils.data.Dataset):
    """The items of the texts, again and again without an end; each is made when it is asked for."""

    def __init__(self, job):
        self.job = job

    def __len__(self):
        return sys.maxsize

    def __getitem__(self, at):
        texts = self.job["texts"]
        return item(texts[at % len(texts)], self.job["network"])


def measured(name, job, batch, steps):
    """Takes steps, each of which is a batch, for as long as was asked, and at least one.

    Some are taken before: kernels are chosen and loaded in the first, and workers start, which then work ahead."""
    for _ in range(10):
        next(steps)
    print(name, flush=True)
    sys.stdin.readline()
    items, seconds, start = 0, 0, time.perf_counter()
    while items == 0 or seconds < job["seconds"]:
        items += next(steps)
        seconds = time.perf_counter() - start
    print(json.dumps({"items": items, "seconds": seconds, "batch": batch}), flush=True)
    steps.close()  # Ends workers.


def attempted(name, job, batch, make):
    """Measures the steps that `make` makes, or says why that was not possible: not every machine has a compiler,
    and shared memory enough for workers."""
    try:
        measured(name, job, batch, make())
    except Exception as error:
        why = str(error).strip().splitlines() or [type(error).__name__]
        print(f"not measured: {name}: {why[0]}", file=sys.stderr, flush=True)


def main():
    with open(os.path.join(HERE, "job.json")) as file:
        job = json.load(file)
    device = torch.device(job["device"])
    if device.type == "cuda" and not torch.cuda.is_available():
        print("missing CUDA: torch.cuda.is_available() is false", flush=True)
        sys.exit(1)
    precision = job["precision"]
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    dtype = {"f16": torch.float16, "bf16": torch.bfloat16}.get(precision, torch.float32)
    kind = {"bert": Encoder, "conv": Convolutions}[job["network"]["kind"]]
    net = kind(read_weights(os.path.join(HERE, "weights.safetensors"), device, dtype), job["network"])
    ready = torch.stack([item(text, job["network"]) for text in job["texts"]])
    size, workers = job["batch"], job["workers"]

    def loop(net, batch):
        while True:
            for at in range(0, len(ready), batch):
                inputs = ready[at : at + batch]
                net(inputs.to(device)).cpu()
                yield len(inputs)

    def loader(net):
        pinned = device.type == "cuda"
        batches = torch.utils.data.DataLoader(
            Items(job), batch_size=size, num_workers=workers, pin_memory=pinned
        )
        for inputs in batches:
            net(inputs.to(device, non_blocking=True)).cpu()
            yield len(inputs)

    with torch.inference_mode():
        with open(os.path.join(HERE, "vectors.bin"), "wb") as file:
            for at in range(0, len(ready), size):
                vectors = net(ready[at : at + size].to(device)).cpu()
                array.array("f", vectors.flatten().tolist()).tofile(file)
        measured("PyTorch, one at a time", job, 1, loop(net, 1))
        for batch in job["batches"]:
            measured(f"PyTorch, batches of {batch}", job, batch, loop(net, batch))
        attempted(f"PyTorch, DataLoader of {workers}, batches of {size}", job, size, lambda: loader(net))
        compiled = torch.compile(net)
        attempted(f"PyTorch, compiled, batches of {size}", job, size, lambda: loop(compiled, size))
        name = f"PyTorch, compiled, DataLoader of {workers}, batches of {size}"
        attempted(name, job, size, lambda: loader(compiled))


if __name__ == "__main__":
    main()
