"""The options of a pool, and the lists of devices in them."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Optional, Union

if TYPE_CHECKING:
    from gangline._broker import Nats

__all__ = [
    "Batch",
    "ForkServer",
    "Options",
    "Paths",
    "Start",
    "Time",
    "at_least",
    "callables",
    "checked_start",
    "device_list",
    "gpu_list",
    "one_of",
    "seconds",
    "visible_gpus",
]

#: Seconds, or a text such as ``"5ms"``.
Time = Union[float, str]
Paths = Union[str, "os.PathLike[str]", Sequence[Union[str, "os.PathLike[str]"]]]


class Batch(NamedTuple):
    """Lists of inputs whose size the pool chooses: ``batch=Batch.auto(latency="50ms")``.

    ``Batch.auto()`` is what ``batch="auto"`` says.
    """

    #: The largest number of inputs in a list, if there is one.
    most: Optional[int] = None
    #: How long an input may wait for its output, if that is bounded.
    latency: Optional[Time] = None

    @classmethod
    def auto(cls, most: Optional[int] = None, *, latency: Optional[Time] = None) -> Batch:
        """Choose the size by the times that lists take: at most ``most`` inputs.

        With ``latency``, a list has at most what a worker finishes in half of that time, since an input waits for the
        list before its own. If inputs wait for longer, lists become larger, so that inputs do not pile up.

        >>> Batch.auto(64, latency="50ms")
        Batch(most=64, latency='50ms')
        """
        return cls(most, latency)


class ForkServer(NamedTuple):
    """Workers that are forked by a process that has imported these modules: ``start=ForkServer(["torch"])``.

    ``ForkServer()`` is what ``start="forkserver"`` says. The process also imports the modules that the functions of the
    pool are from, and those that functions of the main script name.
    """

    #: The names of modules.
    preload: Sequence[str] = ()


#: How worker processes are started.
Start = Union[Literal["spawn", "forkserver"], ForkServer]


class Options(NamedTuple):
    """The options of a pool."""

    gpus: Optional[str] = None
    devices: Optional[str] = None
    workers: Optional[int] = None
    batch: Union[int, Literal["auto"], Batch, None] = None
    batch_wait: Optional[Time] = None
    retries: int = 0
    retry_delay: Optional[Time] = None
    timeout: Optional[Time] = None
    start_timeout: Optional[Time] = None
    end_timeout: Optional[Time] = None
    threads: Optional[int] = None
    max_restarts: Optional[int] = None
    share: bool = False
    lock_gpus: Union[bool, str] = False
    journal: Optional[str] = None
    resume: bool = False
    window: Optional[int] = None
    report: Sequence[str] = ()
    min_workers: Optional[int] = None
    #: How many calls may be open.
    queue: Optional[int] = None
    #: What forks the workers. Without it, each is a new process.
    fork_server: Optional[ForkServer] = None
    #: Whether workers see all GPUs, and not only their own.
    sees_all: bool = False
    #: Whether failed attempts are shown.
    verbose: bool = False
    #: The broker of workers on other machines.
    nats: Optional[Nats] = None

    def count_workers(self) -> int:
        """Return how many workers there will be; on other machines, how many may be."""
        if self.nats is not None:
            return self.nats.max_workers
        if self.devices is not None:
            return count_devices(self.devices)
        gpus = None if self.gpus is None else count_gpus(self.gpus)
        if gpus is not None:
            return gpus if self.workers is None or not self.share else max(self.workers, 1)
        return self.workers if self.workers is not None else len(os.sched_getaffinity(0))


def seconds(time: Time) -> str:
    """Write a time as the native part reads it.

    >>> seconds(0.005), seconds("2m")
    ('5000000ns', '2m')
    """
    if isinstance(time, str):
        return time
    if not time >= 0:
        raise ValueError(f"a time must be at least 0 seconds, got {time!r}")
    return f"{round(time * 1e9)}ns"


def gpu_list(gpus: Union[str, int, Iterable[Union[str, int]]]) -> str:
    """Write a list of GPUs as the native part reads it, with ids in the place of ``all``.

    >>> gpu_list("0-3"), gpu_list([0, 2]), gpu_list(1)
    ('0-3', '0 2', '1')
    """
    text = str(gpus) if isinstance(gpus, (str, int)) else " ".join(str(gpu) for gpu in gpus)
    # Here, since the pool counts its workers.
    return re.sub(r"(?<![^\s,])all(?![^\s,])", lambda _: " ".join(all_gpus()), text)


def device_list(devices: Union[str, Iterable[str]]) -> str:
    """Write a list of devices as the native part reads it, with ids in the place of ``cuda:all``.

    >>> device_list("cuda:0*2,cpu"), device_list(["cuda:0-1", "cpu"])
    ('cuda:0*2,cpu', 'cuda:0-1,cpu')
    """
    text = devices if isinstance(devices, str) else ",".join(devices)
    return re.sub(r"\bcuda\s*:\s*all\b", lambda _: f"cuda:0-{len(all_gpus()) - 1}", text)


def count_gpus(text: str) -> int:
    """Count the entries of a list of GPUs.

    >>> count_gpus("0-3"), count_gpus("0 0,1"), count_gpus("GPU-5f1c2e1a-77b2")
    (4, 3, 1)
    """
    count = 0
    for entry in re.split(r"[\s,]+", text.strip()):
        ends = re.fullmatch(r"(\d+)-(\d+)", entry)
        count += int(ends[2]) - int(ends[1]) + 1 if ends else 1
    return max(count, 1)


def count_devices(text: str) -> int:
    """Count the places of a list of devices.

    >>> count_devices("cuda:0-1*2,cpu*3"), count_devices("cuda:0+cuda:1"), count_devices("cpu")
    (7, 1, 1)
    """
    count = 0
    for entry in text.split(","):
        places, _, times = entry.partition("*")
        _, _, ids = places.partition(":")
        count += (1 if "+" in entry else count_gpus(ids or "0")) * int(times or 1)
    return count


def all_gpus() -> list[str]:
    """Return the ids of all GPUs that this process may use, of which there must be one."""
    gpus = visible_gpus()
    if not gpus:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        found = "is not set" if visible is None else f"is {visible!r} and shows none"
        raise ValueError(
            f"all stands for no GPU: CUDA_VISIBLE_DEVICES {found}; without it, GPUs are those of `nvidia-smi -L`"
        )
    return gpus


def visible_gpus() -> list[str]:
    """Return the ids of all GPUs that this process may use, as CUDA counts them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        # The first entry that CUDA cannot read ends the list, and a repeated entry hides all GPUs.
        names = list(itertools.takewhile(is_gpu, (name.strip() for name in visible.split(","))))
        return [str(index) for index in range(len(names))] if len(set(names)) == len(names) else []
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [str(index) for index, _ in enumerate(re.findall(r"^GPU \d+:", listed, re.MULTILINE))]


def is_gpu(name: str) -> bool:
    """Return whether CUDA reads this entry of its list as a GPU.

    >>> [is_gpu(name) for name in ("1", "GPU-5f1c2e1a", "MIG-4f1c2d3e/1/0", "-1", "NoDevFiles", "")]
    [True, True, True, False, False, False]
    """
    return re.match(r"\+?\d|(GPU|MIG)-", name) is not None


def callables(**functions: object) -> None:
    """Refuse what cannot be called."""
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise TypeError(f"{name} must be a function, got {function!r}")


def one_of(name: str, given: object, allowed: tuple[object, ...]) -> None:
    """Refuse other values of an option."""
    if given not in allowed:
        raise ValueError(f"{name} must be {' or '.join(map(repr, allowed))}, got {given!r}")


def checked_start(start: Start, backend: str) -> Optional[ForkServer]:
    """Return what forks the workers, if something does.

    >>> checked_start("spawn", "processes"), checked_start("forkserver", "processes")
    (None, ForkServer(preload=()))
    """
    if isinstance(start, ForkServer):
        given = start.preload
        names = () if isinstance(given, str) else tuple(given)
        if isinstance(given, str) or not all(isinstance(name, str) and name for name in names):
            raise TypeError(f"preload must be a list of module names such as ['torch'], got {given!r}")
        server = ForkServer(names)
    elif start in ("spawn", "forkserver"):
        if start == "spawn":
            return None
        server = ForkServer()
    else:
        raise ValueError(f"start must be 'spawn', 'forkserver' or a gangline.ForkServer, got {start!r}")
    if backend == "threads":
        raise ValueError("start is how processes are started: it cannot be used with backend='threads'")
    return server


def at_least(least: int, **numbers: Optional[int]) -> None:
    """Refuse smaller numbers, and what is no whole number."""
    for name, number in numbers.items():
        if number is None:
            continue
        if isinstance(number, bool) or not hasattr(number, "__index__"):
            raise TypeError(f"{name} must be a whole number, got {number!r}")
        if number < least:
            raise ValueError(f"{name} must be at least {least}, got {number!r}")
