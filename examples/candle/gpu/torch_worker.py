"""A worker for `gangline run --warm` that computes with PyTorch on the GPU that it is given.

Each input is a number n; the output holds the sum of a product of matrices of n by n ones, which is n * n * n, and
the GPU that computed it.
"""

import json
import os
import sys

answers, sys.stdout = sys.stdout, sys.stderr  # standard output is the protocol's alone

import torch


def say(message):
    print(json.dumps(message), file=answers, flush=True)


hello = json.loads(sys.stdin.readline())
device = torch.device("cuda:0")  # the only one it can see
about = {
    "gpus": hello["gpus"],
    "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
    "count": torch.cuda.device_count(),
    "name": torch.cuda.get_device_name(device),
}
torch.ones(1, device=device).sum().item()
say({"gangline": 1})
for line in sys.stdin:
    message = json.loads(line)
    try:
        n = int(message["input"])
        ones = torch.ones((n, n), dtype=torch.float64, device=device)
        say({"item": message["item"], "output": {"n": n, "sum": (ones @ ones).sum().item(), **about}})
    except Exception as error:
        say({"item": message["item"], "error": repr(error)})
