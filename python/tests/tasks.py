"""Functions that workers call by name."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path


def wait_until(holds):
    while not holds():
        time.sleep(0.01)


class Unrebuildable(Exception):
    """Its arguments are not those of its class."""

    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")


class Input:
    """An input that a test can hold weakly."""

    def __init__(self, number):
        self.number = number


def square(_, x):
    return x * x


def process(_, x):
    return os.getpid()


def echo(_, x):
    return x


def echo_all(_, xs):
    return xs


def squares(_, xs):
    return [x * x for x in xs]


def sizes(_, xs):
    return [len(xs)] * len(xs)


def context_of(context, _):
    return context


def identity(context):
    return context


_has_lost_gpu = False


def lose_gpu(_, x):
    """A kernel that fails at 13, and then CUDA as it is: no further work in this process."""
    global _has_lost_gpu
    _has_lost_gpu = _has_lost_gpu or x == 13
    if _has_lost_gpu:
        raise RuntimeError("CUDA error: device-side assert triggered")
    return x


def lose_gpu_in_lists(_, xs):
    return [lose_gpu(None, x) for x in xs]


def counter(_context):
    return {"seen": 0}


def count(state, _):
    state["seen"] += 1
    return state["seen"], os.getpid()


def fail_on(_, x):
    if x % 3 == 2:
        raise ValueError(f"bad {x}")
    return x


def kill_worker(_, x):
    if x == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def kill_worker_once(_, x):
    path, number = x
    if number == 1 and not Path(path).exists():
        Path(path).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def exit_task(_, x):
    if x == 1:
        sys.exit(3)
    return x


def hard_exit(_, x):
    if x == 1:
        os._exit(5)
    return x


def unpicklable(_, x):
    return threading.Lock() if x == 1 else x


def raise_unrebuildable(_, x):
    if x == 1:
        raise Unrebuildable(x, 2)
    return x


def raise_unprintable(_, x):
    class Unprintable(Exception):
        def __str__(self):
            raise RuntimeError

    raise Unprintable


class NotLoadable:
    """Is pickled, and cannot be rebuilt."""

    def __reduce__(self):
        return int, ("no number",)


def not_loadable(_, x):
    return NotLoadable()


def load_fails(_context):
    raise RuntimeError("no weights")


def load_exits(_context):
    os._exit(7)


def load_fails_on_one(context):
    if context.worker == 1:
        raise RuntimeError("no weights")


def load_fails_beside_work(context):
    """Another worker is ready once it works."""
    if context.worker == 1:
        wait_until(Path(os.environ["WORK_FILE"]).exists)
        raise RuntimeError("no weights")


def note_work(_, x):
    Path(os.environ["WORK_FILE"]).touch()
    time.sleep(0.001)
    return x


def load_fails_on_the_quickest(context):
    if context.worker == 0:
        raise RuntimeError("no weights")
    time.sleep(0.5)


def huge(_, megabytes):
    return b"x" * (megabytes << 20)


def array(_, shape):
    import numpy as np

    return np.ones(shape, dtype=np.float32)


def mean(_, x):
    return None if isinstance(x, set) else float(x.mean())


def add_in_place(_, x):
    x += 1
    return x


def fork(_, x):
    if os.fork() == 0:
        # The child comes back as if it were the task.
        return "child"
    return x


def fork_and_stay(_, x):
    subprocess.Popen(["sleep", "1000"])
    return x


def print_much(_, megabytes):
    line = "x" * 1023
    for _ in range(megabytes << 10):
        print(line)
    return megabytes


def sleep(_, seconds):
    time.sleep(seconds)
    return seconds


def ms(_, x):
    time.sleep(0.001)
    return x


def wait_for_others(_, x):
    """The first waits until so many others have ended."""
    folder, number, others = x
    wait_until(lambda: number > 0 or len(os.listdir(folder)) >= others)
    Path(folder, str(number)).touch()
    return number


def meet(_, x):
    """Each waits until so many workers have an item."""
    folder, workers = x
    Path(folder, str(os.getpid())).touch()
    wait_until(lambda: len(os.listdir(folder)) >= workers)


def echo_beside_another(_, xs):
    """A list waits until two workers have begun one."""
    folder = Path(os.environ["WORKERS"])
    (folder / str(os.getpid())).touch()
    wait_until(lambda: len(os.listdir(folder)) == 2)
    return xs


def hold(_, x):
    """Says that it has begun, and waits until the test lets it go on."""
    folder, name = x
    Path(folder, f"{name}.begun").touch()
    wait_until(Path(folder, f"{name}.go").exists)
    return name


def hold_list(_, xs):
    """Returns the length of its list beside each name."""
    return [(hold(None, x), len(xs)) for x in xs]


def load_fails_once(_context):
    path = Path(os.environ["LOAD_FILE"])
    if not path.exists():
        path.touch()
        raise RuntimeError("no weights")


def read_stdin(_, x):
    return sys.stdin.read()


def environment(_, name):
    return os.environ.get(name)


def end(state):
    with Path(os.environ["END_FILE"]).open("a") as file:
        file.write("ended\n")


def out_of_memory_above_two(_, xs):
    if len(xs) > 2:
        raise MemoryError
    return xs


def list_with_errors(_, xs):
    return [ValueError("odd") if x % 2 else x for x in xs]


def too_few(_, xs):
    return xs[1:]


def leave_out_five(_, xs):
    return [x for x in xs if x != 5]


def columns(_, xs):
    return {"label": xs, "score": xs}


def without_order(_, xs):
    return {x * 1.5 for x in xs}


def print_error(_context):
    print("error: none of the program\n\nUsage: none", file=sys.stderr)


def unreadable_name(_, x):
    raise ValueError(f"cannot read {x}\udce9.mrc")


def bad_in_list(_, xs):
    if 5 in xs:
        raise ValueError("five")
    return xs


def pool_in_a_task(_, x):
    from gangline import Pool

    with Pool(None, square, workers=1) as pool:
        return pool.map([x])[0]


def fail_always(state, x):
    raise ValueError(f"bad {x}")


def say(_, text):
    print(text)


def plus_one_each(_, xs):
    return [x + 1 for x in xs]
