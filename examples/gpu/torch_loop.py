"""The network of the example `gpu` in PyTorch, as people write it: a loop, and a loop over a DataLoader.

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


def read_weights(path, device):
    """The tensors of a safetensors file whose numbers are all of four bytes."""
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
        tensors[name] = values.reshape(about["shape"]).to(device)
    return tensors


class Encoder(torch.nn.Module):
    def __init__(self, weights, job):
        super().__init__()
        self.weights = weights
        self.layers, self.heads = job["layers"], job["heads"]
        self.epsilon = job["epsilon"]

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
        return F.normalize(x.mean(1), dim=1)


def tokens(text, vocabulary, most):
    """As `tokens` of examples/common/words.rs."""
    ids = [1]
    for word in text.split()[: most - 2]:
        hashed = 0x811C9DC5
        for byte in word.encode():
            hashed = ((hashed ^ byte) * 0x01000193) & 0xFFFFFFFF
        ids.append(3 + hashed % (vocabulary - 3))
    return ids + [2]


class Texts(torch.utils.data.Dataset):
    """All texts, gone through so many times; their tokens are made when they are asked for."""

    def __init__(self, job, times):
        self.job, self.times = job, times

    def __len__(self):
        return self.times * len(self.job["texts"])

    def __getitem__(self, at):
        texts = self.job["texts"]
        return torch.tensor(tokens(texts[at % len(texts)], self.job["vocabulary"], self.job["tokens"]))


def measured(name, job, once, least=1):
    """Goes through the texts with `once(times)` once, and then for as long as was asked.

    At least `least` times, and says how often: so that the start of a DataLoader's workers, which is long,
    does not count for more than it does in a long job."""
    start = time.perf_counter()
    once(1)
    times = max(least, math.ceil(job["seconds"] / (time.perf_counter() - start)))
    print(name, flush=True)
    sys.stdin.readline()
    start = time.perf_counter()
    once(times)
    seconds = time.perf_counter() - start
    print(json.dumps({"items": times * len(job["texts"]), "seconds": seconds}), flush=True)
    return times


def main():
    with open(os.path.join(HERE, "job.json")) as file:
        job = json.load(file)
    device = torch.device(job["device"])
    if device.type == "cuda" and not torch.cuda.is_available():
        print("missing CUDA: torch.cuda.is_available() is false", flush=True)
        sys.exit(1)
    torch.set_float32_matmul_precision("high" if job["tf32"] else "highest")
    net = Encoder(read_weights(os.path.join(HERE, "weights.safetensors"), device), job)
    ready = torch.stack([torch.tensor(tokens(t, job["vocabulary"], job["tokens"])) for t in job["texts"]])
    size, workers = job["batch"], job["workers"]

    def loop(batch):
        def once(times):
            for _ in range(times):
                for at in range(0, len(ready), batch):
                    net(ready[at : at + batch].to(device)).cpu()

        return once

    def loader(times):
        pinned = device.type == "cuda"
        batches = torch.utils.data.DataLoader(
            Texts(job, times), batch_size=size, num_workers=workers, pin_memory=pinned
        )
        for ids in batches:
            net(ids.to(device, non_blocking=True)).cpu()

    with torch.inference_mode():
        net(ready[:size].to(device)).cpu()
        measured("PyTorch, one at a time", job, loop(1))
        times = measured(f"PyTorch, batches of {size}", job, loop(size))
        measured(f"PyTorch, DataLoader of {workers}, batches of {size}", job, loader, times)
        with open(os.path.join(HERE, "vectors.bin"), "wb") as file:
            for at in range(0, len(ready), size):
                vectors = net(ready[at : at + size].to(device)).cpu()
                array.array("f", vectors.flatten().tolist()).tofile(file)


if __name__ == "__main__":
    main()
