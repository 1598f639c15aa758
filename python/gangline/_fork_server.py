"""The script of a fork server: it imports modules once, and forks a worker for each request of the driver.

Its messages are described at ``gangline::process::ForkServer``.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import pickle
import select
import socket
import struct
import sys
import threading
import types
import warnings
from typing import Any, NoReturn, Optional

__all__: list[str] = []

_LENGTH = struct.Struct("<I")

#: How long a fork that ends at once may take, in seconds.
PATIENCE = 10


class Refusal(Exception):
    """Workers are to be spawned, for this reason."""


class Failure(Exception):
    """The pool is to fail, for this reason."""


def main() -> None:
    """Serve the driver until it ends. Returns in each fork, which then is a worker."""
    driver, watch = take_driver()
    preparation = pickle.loads(receive(driver))
    # Imports take seconds, in which nothing reads the socket: its end is to end this process.
    fcntl.fcntl(driver, fcntl.F_SETOWN, os.getpid())
    flags = fcntl.fcntl(driver, fcntl.F_GETFL)
    fcntl.fcntl(driver, fcntl.F_SETFL, flags | fcntl.FASYNC)
    try:
        prepare(*preparation)
    except Refusal as refusal:
        refuse(driver, b"-", refusal)
    except Failure as failure:
        refuse(driver, b"!", failure)
    finally:
        fcntl.fcntl(driver, fcntl.F_SETFL, flags)
    # Objects that no collection looks at stay in pages that all workers share.
    gc.collect()
    gc.freeze()
    flush()
    answer(driver, b"+", "")
    serve(driver, watch)


def take_driver() -> tuple[socket.socket, int]:
    """Return the socket of the driver, and a descriptor that is readable when the driver has ended."""
    driver = socket.socket(fileno=os.dup(0))
    os.set_inheritable(driver.fileno(), False)
    # Modules and their programs have no part in it.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    parent = os.getppid()
    watch = os.pidfd_open(parent)
    # Asked afterwards: the descriptor is of no later process.
    if os.getppid() != parent:
        os._exit(1)
    return driver, watch


def refuse(driver: socket.socket, kind: bytes, reason: Exception) -> NoReturn:
    """Say why there are no forks, and end. Threads that a module has started are not waited for."""
    flush()
    answer(driver, kind, str(reason))
    os._exit(0)


def prepare(path: list[str], arguments: list[str], main: dict[str, Any], modules: tuple[list[str], list[str]]) -> None:
    """Import modules. Those that functions name may fail: a worker then says so."""
    # As in a worker, which gets them before its functions.
    sys.path[:] = path
    sys.argv[:] = arguments
    stand_in = sys.modules["__main__"] = types.ModuleType("__main__")
    vars(stand_in).update(main, __builtins__=__builtins__)
    preload, named = modules
    import gangline._native
    import gangline._worker  # noqa: F401

    for name in [*preload, *named]:
        try:
            __import__(name)
        except BaseException as error:
            if name in preload:
                raise Failure(f"the fork server cannot import {name!r}: {type(error).__name__}: {error}") from error
        check_threads(name)
    check_gpus()


def check_threads(module: str) -> None:
    """Refuse a process with a second thread: a fork has none but the one that forks, and locks of others for ever."""
    if count_threads() == 1:
        return
    # Some libraries, as OpenBLAS, end their threads before a fork, and start them when they need them.
    with warnings.catch_warnings():
        # Python 3.12 and later warn of what is found out here.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        os._exit(0)
    watch = os.pidfd_open(pid)
    if not select.select([watch], [], [], PATIENCE)[0]:
        os.kill(pid, 9)
    os.close(watch)
    os.waitpid(pid, 0)
    if count_threads() > 1:
        names = [thread.name for thread in threading.enumerate()[1:]]
        which = f" ({', '.join(names)})" if names else ""
        raise Refusal(f"the import of {module!r} has left a thread running{which}")


def count_threads() -> int:
    """Return how many threads this process has, also those of libraries."""
    return len(os.listdir("/proc/self/task"))


def check_gpus() -> None:
    """Refuse a process that has used a GPU: a fork cannot."""
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            if path.startswith("/dev/nvidia"):
                raise Refusal(f"an import has opened {path}")
    cuda = sys.modules.get("torch.cuda")
    if cuda is not None and cuda.is_initialized():
        raise Refusal("an import has initialised torch.cuda")


def serve(driver: socket.socket, watch: int) -> None:
    """Answer requests. Returns in a fork; otherwise the process ends with the driver."""
    ready = select.poll()
    ready.register(driver, select.POLLIN)
    ready.register(watch, select.POLLIN)
    while True:
        if any(descriptor == watch for descriptor, _ in ready.poll()):
            os._exit(0)
        descriptors: list[int] = []
        request = receive(driver, descriptors)
        try:
            if request.startswith(b"S"):
                _, status = os.waitpid(int(request[1:]), 0)
                answer(driver, b"+", str(status))
                continue
            pid = os.fork()
        except OSError as error:
            close(descriptors)
            answer(driver, b"-", str(error))
            continue
        if pid == 0:
            driver.close()
            os.close(watch)
            become_worker(request, descriptors)
            return
        close(descriptors)
        # Here too: the driver may kill the group before the fork has run.
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        answer(driver, b"+", str(pid))


def become_worker(request: bytes, descriptors: list[int]) -> None:
    """Give a fork what a process of its own would have been started with."""
    os.setpgid(0, 0)
    given, printed = descriptors
    os.dup2(given, 0)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    close(descriptors)
    directory, *variables = request[1:-1].split(b"\0")
    if directory:
        with contextlib.suppress(OSError):
            os.chdir(directory)
    environment = dict(variable.split(b"=", 1) for variable in variables)
    for name in [name for name in os.environb if name not in environment]:
        del os.environb[name]
    for name, value in environment.items():
        if os.environb.get(name) != value:
            os.environb[name] = value
    # That of `random` is seeded anew by itself.
    numbers = sys.modules.get("numpy.random")
    if numbers is not None:
        numbers.seed()


def flush() -> None:
    """Write what imports have printed. A fork would write it again."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()


def close(descriptors: list[int]) -> None:
    """Close descriptors of a request."""
    for descriptor in descriptors:
        os.close(descriptor)


def receive(driver: socket.socket, descriptors: Optional[list[int]] = None) -> bytes:
    """Read a message, and add the descriptors that come with it. Ends the process with the driver."""
    length, more, _, _ = socket.recv_fds(driver, _LENGTH.size, 2, socket.MSG_CMSG_CLOEXEC)
    if descriptors is not None:
        descriptors += more
    (left,) = _LENGTH.unpack(length + read(driver, _LENGTH.size - len(length)))
    return read(driver, left)


def read(driver: socket.socket, left: int) -> bytes:
    """Read this many bytes."""
    pieces = []
    while left:
        piece = driver.recv(min(left, 1 << 20))
        if not piece:
            os._exit(0)
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def answer(driver: socket.socket, kind: bytes, text: str) -> None:
    """Send an answer. Without the driver, the process ends."""
    content = kind + text.encode(errors="replace")
    try:
        driver.sendall(_LENGTH.pack(len(content)) + content)
    except OSError:
        os._exit(0)


if __name__ == "__main__":
    # A script's own folder comes first, where modules of this package would hide others.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    main()
    from gangline._native import worker_main

    worker_main()
    os._exit(1)
