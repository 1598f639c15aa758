"""What a worker knows about itself, and its messages beside results."""

from __future__ import annotations

import sys
from typing import Callable, NamedTuple, Optional

__all__ = ["Context", "log"]


class Context(NamedTuple):
    """The argument of ``load``: where the worker runs.

    >>> Context(worker=0, gpus=("2",), device="cuda:0", threads=4).device
    'cuda:0'
    """

    #: The number of the worker, from 0.
    worker: int
    #: The ids of its GPUs: in a pool those that it was given, such as ``("2",)``; in a script of its own, as CUDA
    #: counts them there. Empty without GPUs.
    gpus: tuple[str, ...]
    #: ``"cuda:0"`` or ``"cpu"``. ``CUDA_VISIBLE_DEVICES`` shows the worker only its own GPUs, so the first is 0.
    device: str
    #: The number of threads that libraries may use here.
    threads: int


# Set by the loop while it runs in this process.
_send_log: Optional[Callable[[str, str], None]] = None


def log(text: str, level: str = "info") -> None:
    """Show a line with the run's standard error. Outside of a worker it is printed there.

    >>> log("half done")
    """
    if _send_log is not None:
        _send_log(text, level)
    else:
        print(text, file=sys.stderr, flush=True)


def connect_log(send: Optional[Callable[[str, str], None]]) -> None:
    """Have :func:`log` send its lines through this function."""
    global _send_log
    _send_log = send
