"""A worker of ``gangline.Pool``. The program starts it as a script."""

from __future__ import annotations

import functools
import itertools
import json
import os
import pickle
import select
import signal
import sys
import threading
from collections.abc import Iterable, Sequence
from typing import Any, Callable, Optional

if __name__ == "__main__":
    # A script's own folder comes first, where modules of this package would hide others.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from gangline import _main
from gangline._context import Context
from gangline._errors import full_text
from gangline._loop import Channel, Loop
from gangline._transport import LARGEST_TEXT, MARK, Memory, Packed, loads, map_memory, pack, unpack

#: The variable with the driver's process, the descriptor of the socket to it, and the path of the setup.
VARIABLE = "GANGLINE_POOL"


class Driver:
    """The socket to the process that made the pool: notices, and memory with large outputs."""

    def __init__(self, descriptor: int, process: int) -> None:
        self._descriptor = descriptor
        self._process = process
        self._sent = 0

    def watch(self) -> None:
        """End the run when the driver has died: this worker, and the program with all others."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLRDHUP)
        try:
            poll.register(os.pidfd_open(self._process), select.POLLIN)
        except ProcessLookupError:
            self._end()
        except (AttributeError, OSError):
            pass  # Refused here: the socket says it, unless a fork of the driver holds it open.
        threading.Thread(target=self._wait, args=(poll,), name="gangline-driver", daemon=True).start()

    def _wait(self, poll: select.poll) -> None:
        poll.poll()
        self._end()

    def _end(self) -> None:
        parent = os.getppid()
        # Not the process that adopted this one after the program's end.
        if name_of(parent) == "gangline":
            # Its supervisor then kills all workers, also one that is just being started.
            os.kill(parent, signal.SIGKILL)
        os.killpg(os.getpgrp(), signal.SIGKILL)

    def say(self, **notice: Any) -> None:
        """Send a notice beside the results."""
        # Each write is a message.
        os.write(self._descriptor, json.dumps(notice).encode())

    def send(self, packed: Packed) -> str:
        """Send memory, and return the JSON that stands for it."""
        # Only here, since it would make each start slower.
        import socket

        self._sent += 1
        name = f"{os.getpid()}-{self._sent}"
        memory = Memory(packed.parts())
        try:
            with socket.socket(fileno=os.dup(self._descriptor)) as connection:
                socket.send_fds(connection, [json.dumps({"memory": name}).encode()], [memory.fd])
        finally:
            memory.close()
        return json.dumps({MARK: {"memory": name}})


def name_of(process: int) -> str:
    """Return the name of a process, or nothing."""
    try:
        with open(f"/proc/{process}/comm") as file:
            return file.read().rstrip("\n")
    except OSError:
        return ""


class PickleCodec:
    """Inputs and outputs are Python values."""

    def __init__(self, driver: Driver, has_keys: bool) -> None:
        self._driver = driver
        self._has_keys = has_keys

    def decode(self, value: Any) -> Any:
        """Rebuild an input. The driver holds large ones until the item is done."""
        if self._has_keys:
            value = value["value"]
        return unpack(value, lambda content: map_memory(os.open(content["memory"], os.O_RDONLY | os.O_CLOEXEC)))

    def encode(self, output: Any) -> str:
        """Return the JSON of an output, or of the memory that holds it."""
        packed = pack(output)
        return packed if isinstance(packed, str) else self._driver.send(packed)

    def describe(self, error: BaseException) -> str:
        """Return the text with the traceback. The exception itself stays here: its class may not be rebuildable."""
        return full_text(error)[:LARGEST_TEXT]


class PoolLoop(Loop):
    """A loop whose inputs may name things of the driver's main module.

    The worker then runs that module up to its first use of a pool, and goes on from there.
    """

    def _serve(
        self,
        work: Callable[[Any, Any], Any],
        state: Any,
        end: Optional[Callable[[Any], object]],
        messages: Iterable[dict[str, Any]],
    ) -> None:
        def go_on(message: dict[str, Any]) -> None:
            Loop._serve(self, work, state, end, itertools.chain([message], messages))

        self._go_on = go_on
        super()._serve(work, state, end, messages)

    def _answers(self, work: Callable[[Any, Any], Any], state: Any, message: dict[str, Any]) -> list[str]:
        _main.continue_with(functools.partial(self._go_on, message))
        return super()._answers(work, state, message)

    def _results(
        self, work: Callable[[Any, Any], Any], state: Any, items: Sequence[int], inputs: list[Any]
    ) -> list[str]:
        # A task runs from here on. If it uses a pool of its own, that must not begin the task again.
        _main.continue_with(None)
        return super()._results(work, state, items, inputs)


def given_gpus(driver: Optional[str]) -> tuple[str, ...]:
    """Return the ids of this worker's GPUs as the driver counts them: under a list of its own, by their places."""
    own = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    if driver is None:
        return tuple(own)
    places = driver.split(",")
    return tuple(str(places.index(name)) if name in places else name for name in own)


def restore(variables: dict[str, Optional[str]]) -> None:
    """Give variables the values that they have in the driver."""
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def main() -> None:
    """Serve one pool."""
    process, descriptor, path = os.environ.pop(VARIABLE).split(":", 2)
    # Subprocesses of tasks must not hold the driver's socket.
    os.set_inheritable(int(descriptor), False)
    driver = Driver(int(descriptor), int(process))
    driver.watch()
    with open(path, "rb") as file:
        setup = pickle.load(file)
    gpus = given_gpus(setup["visible"]["CUDA_VISIBLE_DEVICES"])
    if setup["sees_all"]:
        restore(setup["visible"])
    loop = PoolLoop(PickleCodec(driver, setup["has_keys"]), Channel.take_over(), setup["batch"])
    if loop.context.gpus:
        device = f"cuda:{gpus[0]}" if setup["sees_all"] else "cuda:0"
        loop.context = Context(loop.context.worker, gpus, device, loop.context.threads)
    _main.prepare(setup["main"])
    serve(driver, loop, setup["functions"])


def serve(driver: Driver, loop: Loop, functions: bytes) -> None:
    """Rebuild the functions, load, and answer every message."""
    state: Any = None
    try:
        _main.continue_with(lambda: serve(driver, loop, functions))
        load, work, end = loads(memoryview(bytearray(functions)))
        _main.continue_with(None)
        if load is not None:
            state = load(loop.context)
    except BaseException as error:
        driver.say(load_failed=loop.context.worker, error=full_text(error)[: LARGEST_TEXT // 2])
        # The driver shows the traceback: Python would print it once more.
        raise SystemExit(1) from None
    driver.say(ready=loop.context.worker)
    loop.serve(lambda _: state, work, end)


if __name__ == "__main__":
    main()
