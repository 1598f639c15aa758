"""A warm worker of gangline that reads handwritten digits: it loads the network once. Needs Python 3.8 alone."""

import json, pathlib, sys

from network import load, read

answers, sys.stdout = sys.stdout, sys.stderr  # standard output is the protocol's alone; print goes aside


def say(message):
    print(json.dumps(message), file=answers, flush=True)


hello = json.loads(sys.stdin.readline())  # {"gangline": 1, "worker": 0, "gpus": [], "threads": 2}
net = load(pathlib.Path(__file__).parent.parent / "data" / "digits.safetensors")
say({"gangline": 1})
for line in sys.stdin:  # {"item": 1, "attempt": 1, "input": {"label": "7", "p0": "0", ..}}
    message = json.loads(line)
    try:
        digit = message["input"]
        read_as = read([int(digit[f"p{i}"]) / 16 for i in range(64)], net)
        right = read_as == int(digit["label"])
        say({"item": message["item"], "output": {"label": int(digit["label"]), "read_as": read_as, "right": right}})
    except Exception as error:
        say({"item": message["item"], "error": repr(error)})
