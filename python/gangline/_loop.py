"""The loop of a worker: one message with inputs, one line for each output."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections import UserString
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import islice
from typing import Any, BinaryIO, Callable, Literal, NoReturn, Optional, Protocol, TypeVar, Union

from gangline._context import Context, connect_log
from gangline._errors import BadRequest, first_line, full_text, is_lost_gpu, is_out_of_memory, unicode_text

__all__ = ["Codec", "JsonCodec", "Loop", "worker"]

State = TypeVar("State")

#: The newest version of the protocol between the program and a worker.
VERSION = 2


#: The largest output, in characters of JSON (ASCII). The program ends a worker that writes a line above 64 MiB.
LARGEST_OUTPUT = (64 << 20) - 1024

#: The largest text of an error, in characters.
LARGEST_ERROR = 32 << 10

#: The exit status of a worker that can no longer use its GPU: `EX_UNAVAILABLE`.
LOST_GPU_STATUS = 69


class Codec(Protocol):
    """How values travel as JSON."""

    def decode(self, value: Any) -> Any:
        """Return the input that the JSON value stands for."""

    def encode(self, output: Any) -> str:
        """Return the JSON text of an output, or raise an exception that says why it has none."""

    def describe(self, error: BaseException) -> str:
        """Return the text of an item's error."""


class JsonCodec:
    """Inputs and outputs are JSON; arrays and scalars of numpy and PyTorch are written as lists and numbers."""

    def decode(self, value: Any) -> Any:
        """Return the input itself."""
        return value

    def encode(self, output: Any) -> str:
        """Return the text, and refuse ``NaN`` and the infinities, which JSON lacks.

        >>> JsonCodec().encode({"scores": (1, 2.5)})
        '{"scores":[1,2.5]}'
        >>> JsonCodec().encode(float("nan"))
        Traceback (most recent call last):
        ValueError: NaN is not JSON
        """
        try:
            text = _encode(output)
        except ValueError as error:
            if "JSON compliant" in str(error):
                raise ValueError(f"{non_finite(output)} is not JSON") from None
            raise
        if len(text) > LARGEST_OUTPUT:
            raise ValueError(f"an output has at most 64 MiB as JSON, got {len(text) >> 20}: return the name of a file")
        return text

    def describe(self, error: BaseException) -> str:
        """Return one line. The traceback goes to standard error, which belongs to the item.

        A bad request has no traceback: its text is meant for the caller.
        """
        if isinstance(error, BadRequest):
            return first_line(error).partition(": ")[2][:LARGEST_ERROR] or "bad request"
        print(full_text(error).split("\n\n", 1)[1][:LARGEST_ERROR], file=sys.stderr)
        return first_line(error)[:LARGEST_ERROR]


def plain(value: Any) -> Any:
    """Return what JSON has for an array or a scalar of numpy or PyTorch."""
    tolist = getattr(value, "tolist", None)
    dtype = getattr(value, "dtype", None)
    # Some units of numpy's times become whole numbers, whose unit is then lost.
    if callable(tolist) and not has_times(dtype):
        listed = tolist()
        # Numbers that Python lacks, such as `longdouble`, stay as they are.
        if type(listed) is not type(value):
            return listed
    kind = "" if dtype is None else f" ({dtype})"
    raise TypeError(
        f"an output of type {type(value).__name__}{kind} is not JSON: convert it to a text, a number, a list or a dict"
    )


def has_times(dtype: Any) -> bool:
    """Whether elements of this type are times or durations of numpy, or have them as fields."""
    base = getattr(dtype, "base", dtype)
    fields = getattr(base, "fields", None)
    if isinstance(fields, Mapping):
        return any(has_times(field[0]) for field in fields.values())
    return getattr(base, "kind", None) in ("M", "m")


#: One encoder for all outputs: `json.dumps` with arguments makes one for each.
_encode = json.JSONEncoder(default=plain, allow_nan=False, separators=(",", ":")).encode


def non_finite(output: Any) -> str:
    """Name the value that JSON lacks, as Python's encoder would write it."""
    text = json.dumps(output, default=plain)
    return next(word for word in ("-Infinity", "Infinity", "NaN") if word in text)


def worker(
    load: Optional[Callable[[Context], State]],
    work: Callable[[State, Any], Any],
    *,
    batch: Union[int, Literal["auto"], None] = None,
    end: Optional[Callable[[State], object]] = None,
) -> None:
    """Serve the items of ``gangline run --warm`` until there are no more.

    ``load(context)`` is called once, and returns what ``work`` gets as its first argument; without it, that is
    ``None``. ``work(state, input)`` returns the output, which may be any JSON, or arrays of numpy. With ``batch``,
    ``work(state, inputs)`` gets a list of inputs and returns an output for each in their order: a list, an array or
    an iterator, and no dict, set or data frame. An output that is an exception is that item's error. If there are too
    few outputs or too many, the list is divided until the guilty input stands alone. The program's ``--batch`` says how
    many inputs a list has at most. ``end(state)`` is called after the last item.

    Prints go to standard error, those of C libraries too. An exception is the item's error, also ``sys.exit``. Raise
    ``BadRequest`` for an input with which no attempt could succeed. If a
    list runs out of memory, it is divided, and no item is blamed. After an error that leaves CUDA unusable, such as an
    illegal address in a kernel, the worker answers, and is replaced by a new one.

    A script for ``gangline run --warm -- python3 double.py ::: 1 2 3``::

        import gangline

        gangline.worker(None, lambda state, text: 2 * int(text))
    """
    Loop(JsonCodec(), Channel.take_over(), batch).serve(load, work, end)


class Channel:
    """The two streams to the program: messages in, lines out."""

    def __init__(self, source: BinaryIO, sink: int) -> None:
        self.source = source
        self._sink = sink
        self._lock = threading.Lock()

    @classmethod
    def take_over(cls) -> Channel:
        """Take standard input and output away from everything else in this process."""
        source, sink = os.dup(0), os.dup(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        # C libraries write to descriptor 1 whatever `sys.stdout` is.
        os.dup2(2, 1)
        reconfigure = getattr(sys.stdout, "reconfigure", None)
        if reconfigure is not None:
            # Otherwise the last prints of an item would appear with a later one. The stream is standard error from now
            # on, and prints what standard error does: a name that is not UTF-8 must not fail an item.
            reconfigure(line_buffering=True, errors="backslashreplace")
        channel = cls(os.fdopen(source, "rb"), sink)
        _channels.append(channel)
        return channel

    def send(self, text: str) -> None:
        """Write whole lines, as one piece."""
        rest = memoryview(text.encode())
        with self._lock:
            while rest:
                rest = rest[os.write(self._sink, rest) :]

    def close_after_fork(self) -> None:
        """Keep a forked child from answering, and from holding the program's pipe open."""
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, self._sink)
        os.dup2(nothing, self.source.fileno())
        os.close(nothing)
        self._lock = threading.Lock()


_channels: list[Channel] = []


def _close_channels() -> None:
    for channel in _channels:
        channel.close_after_fork()


# Not a method of a channel: Python 3.9 would free it after the interpreter, and crash.
os.register_at_fork(after_in_child=_close_channels)


class Loop:
    """One worker's conversation with the program."""

    def __init__(self, codec: Codec, channel: Channel, batch: Union[int, Literal["auto"], None]) -> None:
        if batch is not None and batch != "auto" and batch < 1:
            raise ValueError(f"batch must be at least 1, got {batch}")
        self._codec = codec
        self._channel = channel
        self._batch = batch
        self._process = os.getpid()
        self._has_lost_gpu = False
        hello = json.loads(channel.source.readline() or b"{}")
        if "gangline" not in hello:
            raise RuntimeError(
                "no message of gangline on standard input: run this script by `gangline run --warm -- python3 SCRIPT`"
            )
        self._version = min(int(hello["gangline"]), VERSION)
        gpus = tuple(str(gpu) for gpu in hello.get("gpus", ()))
        device = "cuda:0" if gpus else "cpu"
        self.context = Context(int(hello.get("worker", 0)), gpus, device, int(hello.get("threads", 1)))

    def serve(
        self,
        load: Optional[Callable[[Context], Any]],
        work: Callable[[Any, Any], Any],
        end: Optional[Callable[[Any], object]],
    ) -> None:
        """Load, answer every message, and end."""
        connect_log(self._log)
        try:
            state = None if load is None else load(self.context)
            flush()
            self._greet()
            self._serve(work, state, end, map(json.loads, self._channel.source))
        finally:
            connect_log(None)
            flush()

    def _serve(
        self,
        work: Callable[[Any, Any], Any],
        state: Any,
        end: Optional[Callable[[Any], object]],
        messages: Iterable[dict[str, Any]],
    ) -> None:
        for message in messages:
            answers = self._answers(work, state, message)
            if os.getpid() != self._process:
                # A task has forked, and its child came back here too.
                flush()
                os._exit(0)
            flush()
            if self._has_lost_gpu:
                self._leave_after(answers)
            self._send(answers)
        if end is not None:
            end(state)

    def _send(self, answers: Iterable[str]) -> None:
        self._channel.send("".join(f"{answer}\n" for answer in answers))

    def _leave_after(self, answers: Iterable[str]) -> NoReturn:
        # Closed first: a message that came after the answers would be lost, and its items blamed.
        self._channel.source.close()
        self._log("CUDA refuses this process all further work: another worker takes its place", "error")
        self._send(answers)
        # Neither `end` nor hooks of the interpreter: without its GPU, a library may hang there.
        os._exit(LOST_GPU_STATUS)

    def _greet(self) -> None:
        ready: dict[str, Any] = {"gangline": self._version}
        if self._version >= 2:
            ready["batch"] = self._batch is not None
        self._channel.send(json.dumps(ready) + "\n")

    def _log(self, text: str, level: str) -> None:
        if self._version >= 2:
            message = {"log": unicode_text(str(text)), "level": unicode_text(str(level))}
            self._channel.send(json.dumps(message) + "\n")
        else:
            print(text, file=sys.stderr, flush=True)

    def _answers(self, work: Callable[[Any, Any], Any], state: Any, message: dict[str, Any]) -> list[str]:
        items: list[dict[str, Any]] = message.get("items", [message])
        inputs: list[Any] = []
        readable: list[int] = []
        answers: list[str] = []
        for item in items:
            try:
                inputs.append(self._codec.decode(item["input"]))
                readable.append(item["item"])
            except Exception as error:
                answers.append(self._failure(item["item"], error))
        if readable:
            answers += self._results(work, state, readable, inputs)
        return answers

    def _results(
        self, work: Callable[[Any, Any], Any], state: Any, items: Sequence[int], inputs: list[Any]
    ) -> list[str]:
        try:
            if self._batch is None:
                return [self._success(items[0], work(state, inputs[0]))]
            returned = work(state, inputs)
            outputs = outputs_of(returned, len(items))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return self._failed(items, error)
        if outputs is None:
            # Not a failure of the list: it would be divided, and be wrong at each size.
            wrong = ValueError(f"with batch, work returns a list of outputs, got {type(returned).__name__}")
            return [self._failure(item, wrong) for item in items]
        return [self._success(item, output) for item, output in zip(items, outputs)]

    def _success(self, item: int, output: Any) -> str:
        try:
            if isinstance(output, BaseException):
                raise output
            return f'{{"item":{item},"output":{self._codec.encode(output)}}}'
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return self._failure(item, error)

    def _failure(self, item: int, error: BaseException) -> str:
        self._has_lost_gpu = self._has_lost_gpu or is_lost_gpu(error)
        answer: dict[str, Any] = {"item": item, "error": self._codec.describe(error)}
        if isinstance(error, BadRequest):
            answer["kind"] = "input"
        return json.dumps(answer)

    def _failed(self, items: Sequence[int], error: BaseException) -> list[str]:
        """Answer a message whose hook raised."""
        is_list = self._version >= 2 and len(items) > 1
        if is_out_of_memory(error):
            release_memory(error)
            if is_list:
                return ['{"oom":true}']
        if is_list:
            self._has_lost_gpu = is_lost_gpu(error)
            return [json.dumps({"error": self._codec.describe(error), "of": "list"})]
        return [self._failure(item, error) for item in items]


#: What is one value, although it has parts.
ONE_VALUE = (str, bytes, bytearray, memoryview, UserString)

#: Attributes of tables, and of records with named fields: those of pydantic, named tuples, and PyTorch's like them.
NAMED_PARTS = ("columns", "model_fields", "__fields__", "_fields", "n_fields")


def outputs_of(returned: Any, count: int, name: str = "work") -> Optional[list[Any]]:
    """Return the outputs of ``count`` inputs: the parts of an ordered sequence, or of an iterator.

    ``name`` is that of the function of the user's that has returned them.

    ``None`` stands for a value of another type: a number, a text, nothing; also for mappings, tables, records and sets,
    whose parts are names, or belong to all inputs, or are in another order. Another number of outputs is a
    ``ValueError``.

    >>> outputs_of((1, 2), 2), outputs_of(iter("ab"), 2), outputs_of({"x": 1}.values(), 1)
    ([1, 2], ['a', 'b'], [1])
    >>> outputs_of(1, 1), outputs_of("one", 3), outputs_of({"x": [1]}, 1), outputs_of({1, 2}, 2)
    (None, None, None, None)
    >>> outputs_of([1], 2)
    Traceback (most recent call last):
    ValueError: work returned 1 outputs for 2 inputs
    """
    if isinstance(returned, (*ONE_VALUE, Set)) or is_mapping(returned):
        return None
    if any(hasattr(returned, name) for name in NAMED_PARTS):
        return None
    try:
        iterator = iter(returned)
    except TypeError:
        # Also an array without a dimension.
        return None
    # At most one too many: an iterator may be endless.
    outputs = list(islice(iterator, count + 1))
    if len(outputs) == count:
        return outputs
    number = f"{len(outputs)} or more" if len(outputs) > count else str(len(outputs))
    if hasattr(returned, "__len__"):
        number = str(len(returned))
    raise ValueError(f"{name} returned {number} outputs for {count} inputs")


def is_mapping(value: Any) -> bool:
    """Whether a value is a mapping, as for ``dict(value)``. A series of pandas has keys too, and is an array.

    >>> is_mapping({}), is_mapping([])
    (True, False)
    """
    return isinstance(value, Mapping) or (hasattr(value, "keys") and not hasattr(value, "__array__"))


def release_memory(error: BaseException) -> None:
    """Give PyTorch's cached memory back, and the tensors that the traceback holds."""
    error.__traceback__ = None
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "cuda"):
        torch.cuda.empty_cache()


def flush() -> None:
    """Write what Python has buffered, so that it belongs to this item."""
    for stream in (sys.stdout, sys.stderr):
        # A task may have closed it.
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()
