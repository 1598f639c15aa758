"""How Python values travel as JSON: plain values unchanged, others pickled, large ones in shared memory."""

from __future__ import annotations

import base64
import io
import json
import mmap
import os
import pickle
import struct
import sys
from collections.abc import Sequence
from typing import Any, Callable, Optional, Union

__all__ = ["Memory", "Packed", "dumps", "is_in_memory", "is_plain", "map_memory", "pack", "unpack"]

#: Pickles and buffers above this size are not written as text.
LARGEST_TEXT = 64 << 10

#: The only key of an object that stands for a value which is not plain JSON.
MARK = "__gangline__"

#: The largest number of values in a plain one. Looking at more would take longer than pickling.
MOST_VALUES = 4_096

#: The largest number of levels of a plain value. The program reads 127, of which its messages use some.
MOST_LEVELS = 100

_ALIGNMENT = 64

#: One encoder for all values: `json.dumps` with arguments makes one for each.
_encode = json.JSONEncoder(separators=(",", ":")).encode


def is_plain(value: Any) -> bool:  # noqa: PLR0911, PLR0912
    """Whether a value is the same after it was written as JSON and read again.

    >>> is_plain({"name": "a.mrc", "sizes": [1, 2.5, None]})
    True
    >>> is_plain((1, 2)), is_plain(float("nan")), is_plain(1 << 70), is_plain({1: 2})
    (False, False, False, False)
    """
    level = [value]
    left = MOST_VALUES
    for _ in range(MOST_LEVELS):
        inside: list[Any] = []
        for each in level:
            kind = type(each)
            if kind is str:
                # A file name that is not UTF-8 has surrogates.
                if len(each) > LARGEST_TEXT or not (each.isascii() or _is_utf8(each)):
                    return False
            elif kind is int:
                if not -(1 << 63) <= each < 1 << 63:
                    return False
            elif kind is float:
                if each - each != 0.0:
                    return False
            elif kind is list:
                inside += each
            elif kind is dict:
                if MARK in each or any(type(key) is not str for key in each):
                    return False
                inside += each
                inside += each.values()
            elif each is not None and kind is not bool:
                return False
        left -= len(level)
        if not inside:
            return True
        if len(inside) > left:
            return False
        level = inside
    return False


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def dumps(value: Any, add_buffer: Optional[Callable[[pickle.PickleBuffer], object]] = None) -> bytes:
    """Pickle a value. Functions go by module and name, and by value if cloudpickle is installed and names fail."""
    if not _main_has_file() and (cloudpickle := _cloudpickle()) is not None:
        # A name in `__main__` would be found here and not by a worker.
        return bytes(cloudpickle.dumps(value, protocol=5, buffer_callback=add_buffer))
    try:
        return pickle.dumps(value, protocol=5, buffer_callback=add_buffer)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        if (cloudpickle := _cloudpickle()) is not None:
            return bytes(cloudpickle.dumps(value, protocol=5, buffer_callback=add_buffer))
        if isinstance(error, TypeError):
            raise
        raise pickle.PicklingError(f"{error} (with cloudpickle installed, functions without a name work too)") from None


def _cloudpickle() -> Any:
    try:
        import cloudpickle  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        return None
    return cloudpickle


def _main_has_file() -> bool:
    from gangline import _main

    return getattr(sys.modules.get("__main__"), "__spec__", None) is not None or _main.main_file() is not None


class Memory:
    """Memory without a name, which the system frees with its last user, however that ends."""

    def __init__(self, parts: Sequence[memoryview]) -> None:
        self.fd = os.memfd_create("gangline", os.MFD_CLOEXEC)
        try:
            for part in parts:
                rest = part
                while rest:
                    rest = rest[os.write(self.fd, rest) :]
        except BaseException:
            self.close()
            raise

    @property
    def path(self) -> str:
        """Where another process of the same user opens it while it is held here."""
        return f"/proc/{os.getpid()}/fd/{self.fd}"

    def close(self) -> None:
        """Let go of it. Processes that have opened it keep it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Packed:
    """A pickled value: its parts, the stream of the pickle first."""

    def __init__(self, value: Any) -> None:
        buffers: list[pickle.PickleBuffer] = []
        stream = dumps(value, buffers.append)
        self.segments = [memoryview(stream), *(buffer.raw() for buffer in buffers)]
        self.size = sum(segment.nbytes for segment in self.segments)

    def parts(self) -> list[memoryview]:
        """The number and the sizes of the segments, then the segments, each aligned."""
        sizes = [segment.nbytes for segment in self.segments]
        parts = [memoryview(struct.pack(f"<{len(sizes) + 1}Q", len(sizes), *sizes))]
        at = parts[0].nbytes
        for segment in self.segments:
            gap = -at % _ALIGNMENT
            parts += [memoryview(bytes(gap)), segment]
            at += gap + segment.nbytes
        return parts

    def text(self) -> str:
        """The value as JSON, for a small one."""
        return f'{{"{MARK}":"{base64.b64encode(b"".join(self.parts())).decode()}"}}'


def pack(value: Any) -> Union[str, Packed]:
    """Return the JSON of a plain value or of a small pickle, and the parts of a large one."""
    if is_plain(value):
        text = _encode(value)
        if len(text) <= LARGEST_TEXT:
            return text
    packed = Packed(value)
    return packed.text() if packed.size <= LARGEST_TEXT else packed


class _Unpickler(pickle.Unpickler):
    """Looks names of `__main__` up where the driver's main module is."""

    def find_class(self, module: str, name: str) -> Any:
        if module in ("__main__", "__mp_main__"):
            from gangline import _main

            _main.load()
            main = sys.modules["__main__"]
            if not hasattr(main, name.partition(".")[0]):
                script = getattr(main, "__file__", module)
                raise AttributeError(
                    f"{name} is not defined in {script} where a worker stops running it: define it above the line that "
                    f"first uses a pool, and not below `if __name__ == '__main__'`"
                )
        return super().find_class(module, name)


def map_memory(fd: int) -> mmap.mmap:
    """Map memory, which needs no descriptor then: private and writable, as arrays have to be, and shared until then."""
    try:
        return mmap.mmap(fd, 0, access=mmap.ACCESS_COPY)
    finally:
        os.close(fd)


def is_in_memory(value: Any) -> bool:
    """Whether JSON stands for a large value."""
    return type(value) is dict and type(value.get(MARK)) is dict


def unpack(value: Any, memory_of: Callable[[Any], mmap.mmap]) -> Any:
    """Return the value that JSON stands for. `memory_of` gives the memory of a large one."""
    if type(value) is not dict or MARK not in value:
        return value
    content = value[MARK]
    if isinstance(content, str):
        return loads(memoryview(bytearray(base64.b64decode(content))))
    return loads(memoryview(memory_of(content)))


def loads(content: memoryview) -> Any:
    """Rebuild a value from the parts of a `Packed`. Its arrays use this memory."""
    (count,) = struct.unpack_from("<Q", content)
    sizes = struct.unpack_from(f"<{count}Q", content, 8)
    at = 8 * (count + 1)
    segments = []
    for size in sizes:
        at += -at % _ALIGNMENT
        segments.append(content[at : at + size])
        at += size
    return _Unpickler(io.BytesIO(segments[0]), buffers=segments[1:]).load()
