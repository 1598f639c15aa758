"""Finds the program, and writes the options of a pool as its arguments."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, Optional, Union

__all__ = ["Options", "Paths", "Time", "find_program", "in_python", "refusal", "visible_gpus"]

#: Seconds, or a text such as ``"5ms"``.
Time = Union[float, str]
Paths = Union[str, "os.PathLike[str]", Sequence[Union[str, "os.PathLike[str]"]]]


def find_program() -> str:
    """Return the path of the program: ``$GANGLINE``, that of this installation, or the first in ``$PATH``."""
    given = os.environ.get("GANGLINE")
    if given:
        return given
    schemes = [sysconfig.get_default_scheme() if sys.version_info >= (3, 10) else None]
    if os.name == "posix":
        schemes.append("posix_user")
    for scheme in schemes:
        folder = sysconfig.get_path("scripts", scheme) if scheme else sysconfig.get_path("scripts")
        path = os.path.join(folder, "gangline")
        if os.access(path, os.X_OK):
            return path
    import shutil

    found = shutil.which("gangline")
    if found is None:
        raise FileNotFoundError("the program gangline is not installed beside this module, and not in PATH")
    return found


def seconds(time: Time) -> str:
    """Write a time as the program reads it.

    >>> seconds(0.005), seconds("2m")
    ('5000000ns', '2m')
    """
    if isinstance(time, str):
        return time
    if not time >= 0:
        raise ValueError(f"a time must be at least 0 seconds, got {time!r}")
    return f"{round(time * 1e9)}ns"


def gpu_list(gpus: Union[str, int, Iterable[Union[str, int]]]) -> str:
    """Write a list of GPUs as the program reads it, with ids in the place of ``all``.

    >>> gpu_list("0-3"), gpu_list([0, 2]), gpu_list(1)
    ('0-3', '0 2', '1')
    """
    text = str(gpus) if isinstance(gpus, (str, int)) else " ".join(str(gpu) for gpu in gpus)
    # Here and not in the program, since the pool counts its workers.
    return re.sub(r"(?<![^\s,])all(?![^\s,])", lambda _: " ".join(all_gpus()), text)


def device_list(devices: Union[str, Iterable[str]]) -> str:
    """Write a list of devices as the program reads it, with ids in the place of ``cuda:all``.

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
    """Return the ids of all GPUs that this process may use, as the program and CUDA count them."""
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


#: Options of the program that have other names in a pool, and those without a value.
RENAMED = {"gpu-list": "gpus"}
FLAGS = ("share", "preload", "resume", "lock-gpus")

#: The other options of the program that a pool has.
NAMED = (
    *("devices", "workers", "batch", "batch-wait", "retries", "retry-delay", "timeout", "start-timeout"),
    *("end-timeout", "threads", "max-restarts", "journal", "window", "report"),
)


def in_python(text: str) -> str:
    """Write a message of the program with the names that its options have in a pool.

    >>> in_python("'--gpu-list <LIST>' needs a value; --resume continues it (--start-timeout)")
    'gpus= needs a value; resume=True continues it (start_timeout=)'
    >>> in_python("go on with --no-journal-lock")
    'go on with --no-journal-lock'
    """

    def named(option: re.Match[str]) -> str:
        name = option[2]
        if name in FLAGS:
            return f"{name.replace('-', '_')}=True"
        return f"{RENAMED.get(name, name).replace('-', '_')}=" if name in NAMED or name in RENAMED else option[0]

    return re.sub(r"('?)--([a-z][a-z-]*[a-z])(?:[ =]<[A-Z]+>)?\1", named, text)


def refusal(lines: Iterable[str]) -> str:
    """Return why the program has refused its options, without the advice that is for a shell.

    >>> refusal(["error: these are missing:", "  --gpu-list <LIST>", "", "Usage: gangline run", "", "For more"])
    'these are missing: gpus='
    """
    reasons = itertools.takewhile(lambda line: not line.startswith(("Usage:", "For more information")), lines)
    return in_python(" ".join(" ".join(reasons).split())[len("error: ") :])


def is_gpu(name: str) -> bool:
    """Return whether CUDA reads this entry of its list as a GPU.

    >>> [is_gpu(name) for name in ("1", "GPU-5f1c2e1a", "MIG-4f1c2d3e/1/0", "-1", "NoDevFiles", "")]
    [True, True, True, False, False, False]
    """
    return re.match(r"\+?\d|(GPU|MIG)-", name) is not None


#: With ``batch="auto"``, a worker's lists have room for this many items.
LARGEST_CHOSEN = 128


class Options(NamedTuple):
    """The options of a pool that are those of the program."""

    gpus: Optional[str] = None
    devices: Optional[str] = None
    workers: Optional[int] = None
    batch: Union[int, Literal["auto"], None] = None
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
    preload: bool = False
    journal: Optional[str] = None
    resume: bool = False
    #: Whether the journal knows items by their keys, which are sent with them.
    has_keys: bool = False
    #: Whether the program puts records in order, and not the pool.
    keeps_order: bool = False
    window: Optional[int] = None
    report: Sequence[str] = ()
    min_workers: Optional[int] = None
    #: Whether workers see all GPUs, and not only their own.
    sees_all: bool = False
    #: Whether the program's own messages are shown.
    verbose: bool = False

    def count_workers(self) -> int:
        """Return how many workers the program will have."""
        if self.devices is not None:
            return count_devices(self.devices)
        gpus = None if self.gpus is None else count_gpus(self.gpus)
        if gpus is not None:
            return gpus if self.workers is None or not self.share else max(self.workers, 1)
        return self.workers if self.workers is not None else len(os.sched_getaffinity(0))

    def largest_list(self) -> int:
        """Return how many items a worker may get at once, as far as the window of the pool is concerned."""
        return LARGEST_CHOSEN if self.batch == "auto" else self.batch or 1

    def list_size(self) -> Union[int, str, None]:
        """Return the option ``--batch``: of a chosen size, at most half of what a given window has for each worker.

        >>> Options(workers=2, batch="auto").list_size(), Options(workers=2, batch="auto", window=16).list_size()
        ('auto', 'auto:4')
        """
        if self.batch != "auto" or self.window is None:
            return self.batch
        return f"auto:{min(256, max(1, self.window // (2 * self.count_workers())))}"

    def arguments(self) -> list[str]:
        """Return the arguments between ``run`` and the worker's command."""
        arguments = ["run", "--warm", "--jsonl", "--records=outcome", "--grace", "0s"]
        values = {
            "gpu-list": self.gpus,
            "devices": self.devices,
            "workers": self.workers,
            "batch": self.list_size(),
            "batch-wait": None if self.batch is None else self.batch_wait,
            "retries": self.retries,
            "retry-delay": self.retry_delay,
            "timeout": self.timeout,
            "start-timeout": self.start_timeout,
            "end-timeout": self.end_timeout,
            "threads": self.threads,
            "max-restarts": self.max_restarts,
            "journal": self.journal,
        }
        times = {"batch-wait", "retry-delay", "timeout", "start-timeout", "end-timeout"}
        for name, value in values.items():
            if value is not None:
                text = seconds(value) if name in times else str(value)
                arguments.append(f"--{name}={text}")
        # The pool learns of failures from records, so the program need not print them.
        flags = {"share": self.share, "preload": self.preload, "resume": self.resume, "quiet": not self.verbose}
        arguments += [f"--{name}" for name, is_set in flags.items() if is_set]
        if self.lock_gpus:
            arguments.append("--lock-gpus=wait" if self.lock_gpus == "wait" else "--lock-gpus")
        if not self.keeps_order:
            # A slow item of one call then holds up no other call.
            arguments.append("--no-keep-order")
        if self.has_keys:
            arguments.append("--key=key")
        if self.journal is not None and self.window is not None:
            arguments.append(f"--window={self.window}")
        arguments += [f"--report={path}" for path in self.report]
        return arguments
