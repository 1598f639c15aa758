"""Functions that the workers of a pipeline call by name."""

import os
import signal
import time
from pathlib import Path


class Counting:
    """Counts in this process how often a value is pickled and rebuilt."""

    pickled = 0
    rebuilt = 0

    def __init__(self, number):
        self.number = number

    def __reduce__(self):
        Counting.pickled += 1
        return rebuild, (self.number,)


def rebuild(number):
    Counting.rebuilt += 1
    return Counting(number)


def double(x):
    return 2 * x


def echo(x):
    return x


def echo_all(xs):
    return xs


def load_ten(_context):
    return 10


def add(state, x):
    return state + x


def total(xs):
    return [sum(xs)] * len(xs)


def count_to(n):
    return range(n)


def sum_up(gathered):
    parent, outputs = gathered
    return parent, sum(outputs)


def fail_on_five(x):
    if x == 5:
        raise ValueError("five")
    return x


def kill_on_five(x):
    if x == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def fail_at_first(x):
    """Fails once for each number."""
    path, number = x
    try:
        Path(path, str(number)).touch(exist_ok=False)
    except FileExistsError:
        return number
    raise ValueError("once")


def sleep(seconds):
    time.sleep(seconds)
    return seconds


def note(x):
    with Path(os.environ["NOTES"]).open("a") as file:
        file.write(f"{x}\n")
    return x


def wait_for_file(x):
    """The first waits until the last has ended."""
    folder, number, last = x
    while number == 0 and not Path(folder, str(last)).exists():
        time.sleep(0.01)
    Path(folder, str(number)).touch()
    return number


def process(_):
    return os.getpid()


def load_once(_context):
    path = Path(os.environ["NOTES"])
    if path.exists():
        raise RuntimeError("no second time")
    path.touch()


def kill_on_five_with_state(_, x):
    return kill_on_five(x)


def load_fails(_context):
    raise RuntimeError("no weights")
