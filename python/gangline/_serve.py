"""A worker for drivers on other machines, which ``gangline worker --serve python`` starts."""

from __future__ import annotations

import subprocess
import sys

from gangline import _start
from gangline._native import worker_of_cluster

__all__ = ["serve"]


def serve() -> None:
    """Serve the broker that the environment names. It does not return then."""
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    worker_of_cluster(sys.executable, [*flags, _start.__file__])
    sys.exit("this module is started by `gangline worker --serve python`")


if __name__ == "__main__":
    serve()
