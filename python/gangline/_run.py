"""One process of the program, and the items that it has."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import pickle
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any, Callable, Optional

from gangline import _child, _main
from gangline._errors import PoolError
from gangline._program import Options, find_program, in_python, refusal
from gangline._records import Record
from gangline._transport import MARK, Memory, Packed, is_in_memory, map_memory, unpack

__all__ = ["Item", "Run", "check_owner"]

#: The time that the program gets to kill its workers before it is killed itself, and they with it.
KILL_PATIENCE = 5.0

#: The exit status of a program that has refused its options.
REFUSED = 102

#: The error of an item for which no worker was left. The program then ends, and says why.
NONE_LEFT = "which was given up, like all others"

_Message = dict[str, Any]

#: Takes the records of a call, whether one of them has a large output, and how many items an earlier run had done.
Ended = Callable[[Sequence[Record], bool, int], None]


class Item:
    """An item that the program has, and where its record goes."""

    def __init__(self, index: int, key: Any, done: Ended) -> None:
        self.index = index
        self.key = key
        self.done = done
        self._memory: Optional[Memory] = None
        self._places: Optional[threading.Semaphore] = None

    def hold(self, packed: Packed, places: threading.Semaphore) -> str:
        """Put its input into memory, once there is a place for that, and return where it is."""
        places.acquire()
        self._places = places
        try:
            self._memory = Memory(packed.parts())
        except BaseException:
            self.release()
            raise
        return self._memory.path

    def release(self) -> None:
        """Free the memory with its input."""
        if self._memory is not None:
            self._memory.close()
            self._memory = None
        if self._places is not None:
            self._places.release()
            self._places = None


class Run:
    """The program as a child process. Its methods may be called by any thread."""

    def __init__(self, options: Options, functions: bytes) -> None:
        _main.pool_starts()
        self._options = options
        # Fed and not ended, by their numbers in the program.
        self._items: dict[int, Item] = {}
        self._fed = 0
        self._feeding = threading.Lock()
        self._state = threading.Condition()
        self._error: Optional[PoolError] = None
        self._is_reported = False
        self._has_ended = False
        self._is_input_over = False
        self._is_closing = False
        self._owner = os.getpid()
        # Called once the program has ended, or cannot go on.
        self._listeners: list[Callable[[], None]] = []
        self._is_ready = False
        self._failed_loads: dict[int, str] = {}
        self._said: deque[str] = deque(maxlen=20)
        self._printed: deque[str] = deque(maxlen=5)
        # What may be the reason why the program has refused its options, and is then no message of a task.
        self._refusal: list[str] = []
        self._memories: dict[str, mmap.mmap] = {}
        # Each takes a descriptor, and others need some too.
        self._places = threading.Semaphore(max(16, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4))
        setup = {
            "main": _main.describe(),
            "functions": functions,
            "batch": options.batch,
            "has_keys": options.has_keys,
            "visible": {name: os.environ.get(name) for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")},
            "sees_all": options.sees_all,
        }
        self._setup = Memory([memoryview(pickle.dumps(setup))])
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = self._start(theirs.fileno())
        self._threads = [
            threading.Thread(target=target, name=f"gangline-{name}", daemon=True)
            for target, name in ((self._forward, "messages"), (self._read, "records"))
        ]
        for thread in self._threads:
            thread.start()
        _runs.add(self)

    def _start(self, descriptor: int) -> subprocess.Popen[bytes]:
        flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        command = [find_program(), *self._options.arguments(), "--", sys.executable, *flags, _child.__file__]
        environment = {**os.environ, _child.VARIABLE: f"{os.getpid()}:{descriptor}:{self._setup.path}"}
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            pass_fds=(descriptor,),
            # Ctrl-C is for this process, which ends the program in order.
            start_new_session=True,
        )

    @property
    def has_keys(self) -> bool:
        """Whether items are sent with their keys."""
        return self._options.has_keys

    @property
    def owner(self) -> int:
        """The process that started this run."""
        return self._owner

    @property
    def process_id(self) -> int:
        """The number of the program's process."""
        return self._process.pid

    def failure(self) -> Optional[PoolError]:
        """Return why no more records will come, if that is an error, and count it as reported."""
        with self._state:
            self._is_reported = True
            return self._error

    @property
    def is_closing(self) -> bool:
        """Whether no more records are wanted."""
        return self._is_closing

    @property
    def has_ended(self) -> bool:
        """Whether all records have come."""
        return self._has_ended

    def listen(self, listener: Callable[[], None]) -> None:
        """Call this once no more records will come, or are wanted; at once if that is so now."""
        with self._state:
            if not (self._has_ended or self._error):
                self._listeners.append(listener)
                return
        listener()

    def forget(self, listener: Callable[[], None]) -> None:
        """Do not call it any more."""
        with self._state, contextlib.suppress(ValueError):
            self._listeners.remove(listener)

    def feed(self, lines: Sequence[tuple[str, Item]]) -> None:
        """Give the program items. May block while it does not read, and never after it has ended."""
        if not lines:
            return
        with self._feeding:
            with self._state:
                if self._has_ended or self._error:
                    for _, item in lines:
                        item.release()
                    return
                for _, item in lines:
                    self._fed += 1
                    self._items[self._fed] = item
            self._write("".join(f"{line}\n" for line, _ in lines).encode())

    def hold(self, value: Packed, item: Item) -> str:
        """Put the input of an item into shared memory, once there is a place, and return the JSON that names it."""
        return json.dumps({MARK: {"memory": item.hold(value, self._places)}})

    def _write(self, line: bytes) -> None:
        stdin = self._process.stdin
        assert stdin is not None, "it was opened as a pipe"
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(stdin.fileno(), rest) :]
        except (OSError, ValueError):
            pass  # It has ended, or this has been closed: the reader reports that.

    def end_input(self) -> None:
        """Say that no more items will come. The workers then end."""
        self._is_input_over = True
        with self._feeding:
            self._close_input()

    def _close_input(self) -> None:
        assert self._process.stdin is not None, "it was opened as a pipe"
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def close(self) -> Optional[PoolError]:
        """End the run in order: no further item starts, and each worker ends. Returns an error not yet reported."""
        if os.getpid() != self._owner:
            return None
        is_busy = self._begin_closing()
        if is_busy:
            # The results of these are not wanted any more.
            self._signal(signal.SIGINT)
        self.end_input()
        self._process.wait()
        self._finish()
        return None if is_busy or self._is_reported else self.failure()

    def kill(self) -> None:
        """End the program and all workers now."""
        if os.getpid() != self._owner:
            return
        self._begin_closing()
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(KILL_PATIENCE)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait()
        self._finish()

    def _begin_closing(self) -> bool:
        """Let all threads go that wait for this run. Returns whether the program has items."""
        self._is_closing = True
        with self._state:
            is_busy = bool(self._items) and not self._has_ended
            listeners = list(self._listeners)
        for listener in listeners:
            listener()
        return is_busy

    def _signal(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)

    def _finish(self) -> None:
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        with self._feeding:
            self._close_input()
        self._setup.close()
        _runs.discard(self)

    def leave_to_parent(self) -> None:
        """Let go of everything in a forked child, so that the parent's close is noticed by the program."""
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                _close_quietly(stream.fileno())
        _close_quietly(self._socket.fileno())

    # The reader's thread.

    def _read(self) -> None:
        try:
            self._read_records()
        except Exception as error:
            self._end(PoolError(f"a record cannot be read: {error!r}"))
            self._signal(signal.SIGTERM)
        try:
            self._end(self._why_ended(self._process.wait()))
        finally:
            # Whatever has failed: callers wait for this.
            self._end(PoolError("the end of the program cannot be read"))
            self._socket.close()
            self._memories.clear()

    def _read_records(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None, "it was opened as a pipe"
        poll = select.poll()
        poll.register(stdout, select.POLLIN)
        poll.register(self._socket, select.POLLIN)
        pending = bytearray()
        while True:
            ready = {fd for fd, _ in poll.poll()}
            # Memory is sent before the record that names it.
            if self._socket.fileno() in ready and not self._hear():
                poll.unregister(self._socket)
            if stdout.fileno() in ready:
                piece = os.read(stdout.fileno(), 1 << 20)
                if not piece:
                    stdout.close()
                    return
                searched = len(pending)
                pending += piece
                end = pending.rfind(b"\n", searched) + 1
                if end:
                    # One call for all lines, which is quicker than one for each.
                    lines = pending[: end - 1].replace(b"\n", b",")
                    del pending[:end]
                    self._take(json.loads(b"[" + lines + b"]"))

    def _hear(self) -> bool:
        """Take a notice of a worker. Returns whether more may come."""
        content, fds, _, _ = socket.recv_fds(self._socket, 1 << 20, 1)
        if not content:
            return False
        notice = json.loads(content)
        if "memory" in notice:
            self._memories[notice["memory"]] = map_memory(fds[0])
        elif "ready" in notice:
            self._is_ready = True
            self._failed_loads.pop(notice["ready"], None)
        else:
            self._load_failed(notice["load_failed"], notice["error"])
        return True

    def _load_failed(self, worker: int, text: str) -> None:
        is_new = worker not in self._failed_loads
        self._failed_loads[worker] = text
        left = self._options.count_workers() - len(self._failed_loads)
        least = self._options.min_workers
        # A load that fails at once must not end workers that still load, if some are allowed to fail.
        if left < least if least is not None else not self._is_ready:
            self._end(PoolError(f"load failed on worker {worker}: {text}"))
            self._signal(signal.SIGTERM)
        elif is_new:
            show(f"gangline: worker {worker} cannot load: {text}\n")

    def _memory_of(self, content: _Message) -> mmap.mmap:
        while content["memory"] not in self._memories:
            if not self._hear():
                raise PoolError("the memory of an output was not sent")
        return self._memories.pop(content["memory"])

    def _take(self, messages: list[_Message]) -> None:
        # By the calls that wait for them.
        ended: dict[Ended, list[Record]] = {}
        left_out: Counter[Ended] = Counter()
        has_large = False
        # The error of an item for which no worker was left is the pool's.
        messages = [message for message in messages if not str(message.get("error")).endswith(NONE_LEFT)]
        with self._state:
            items = [self._items.pop(message["item"], None) for message in messages]
        for item, message in zip(items, messages):
            if item is not None:
                item.release()
                if "done" in message:
                    left_out[item.done] += 1
                    continue
                has_large |= is_in_memory(message.get("output"))
                ended.setdefault(item.done, []).append(self._record(item, message))
        for done in {*ended, *left_out}:
            done(ended.get(done, []), has_large, left_out[done])

    def _record(self, item: Item, message: _Message) -> Record:
        value, error, output = None, message.get("error"), message.get("output")
        if error is None:
            try:
                value = unpack(output, self._memory_of)
            except Exception as unreadable:
                error = f"the output cannot be rebuilt: {type(unreadable).__name__}: {unreadable}"
        return Record(
            index=item.index,
            key=item.key,
            value=value,
            error=error,
            gpus=tuple(map(str, message.get("gpus") or ())),
            seconds=float(message.get("seconds") or 0.0),
            attempts=int(message.get("attempts") or 0),
            worker=message.get("slot"),
        )

    def _why_ended(self, status: int) -> Optional[PoolError]:
        with self._state:
            is_missing = bool(self._items)
        # Up to 101, it is the number of failed items, which their records tell.
        if 0 <= status <= 101 and (self._is_input_over or not is_missing):
            return None
        if self._is_closing and status in (130, 143):
            return None
        self._threads[0].join()
        if status == REFUSED and self._refusal:
            return PoolError(refusal(self._refusal))
        loads = [f"load failed on worker {worker}: {text}" for worker, text in self._failed_loads.items()]
        said = "; ".join(loads[:1] or self._said or self._printed) or "it gave no reason"
        how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
        return PoolError(f"the program {how}: {in_python(said)}")

    def _end(self, error: Optional[PoolError]) -> None:
        with self._state:
            if self._error is None and not self._has_ended:
                self._error = error
            self._has_ended = True
            items, self._items = self._items, {}
            listeners, self._listeners = self._listeners, []
        for item in items.values():
            item.release()
        for listener in listeners:
            listener()

    # The thread that forwards standard error.

    def _forward(self) -> None:
        """Pass on what tasks print. The program's own messages are kept for errors: records have the failures."""
        stderr = self._process.stderr
        assert stderr is not None, "it was opened as a pipe"
        for line in stderr:
            is_own = line.startswith(b"gangline: ")
            text = line.decode(errors="replace")
            if is_own:
                self._said.append(text[len("gangline: ") :].rstrip())
            elif self._may_be_refused(text):
                self._refusal.append(text)
                continue
            else:
                self._show_refusal()
                self._printed.append(text.rstrip())
            if self._options.verbose or not is_own:
                show(in_python(text) if is_own else text)
        stderr.close()
        if self._refusal and self._process.wait() != REFUSED:
            self._show_refusal()

    def _may_be_refused(self, text: str) -> bool:
        """Whether a line may say why the program has refused its options: it says so before it starts a worker."""
        if self._is_ready or self._failed_loads or self._said or self._printed:
            return False
        return bool(self._refusal) or text.startswith("error: ")

    def _show_refusal(self) -> None:
        """Show lines of a task that looked like a refusal of the program."""
        lines, self._refusal = self._refusal, []
        self._printed.extend(line.rstrip() for line in lines)
        show("".join(lines))


def check_owner(process: int) -> None:
    """Refuse the use of a pool in a fork of its process, where no thread reads records."""
    if os.getpid() != process:
        raise PoolError(f"this pool is of process {process}: make one in this process, a fork of it")


def show(text: str) -> None:
    """Write to standard error. If that was closed, the text is lost, and what waits for this thread is not."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        sys.stderr.write(text)
        sys.stderr.flush()


def _close_quietly(fd: int) -> None:
    with contextlib.suppress(OSError):
        os.close(fd)


_runs: weakref.WeakSet[Run] = weakref.WeakSet()


def _after_fork() -> None:
    for run in list(_runs):
        run.leave_to_parent()


os.register_at_fork(after_in_child=_after_fork)
