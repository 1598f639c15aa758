"""Large values in memory that the driver and its workers share."""

from __future__ import annotations

import mmap
import os
import resource
import sys
from collections.abc import Sequence
from typing import Any, Optional, Union

__all__ = ["view", "write"]

#: The alignment of each part of a value, in bytes. Arrays want it.
ALIGNMENT = 64

#: How many values may be mapped at once. The kernel allows 65,530 maps in a process.
MOST_MAPS = 10_000

#: Before Python 3.13, a map keeps a descriptor of its own.
NEEDS_DESCRIPTOR = sys.version_info < (3, 13)

#: How many parts one system call writes.
MOST_PARTS = 1024

_PADDING = bytes(ALIGNMENT)
#: The ids of the maps that are alive.
_maps: dict[int, None] = {}


class _Map(mmap.mmap):
    """A map of one value. While it lives, also in an array made of it, nothing writes over the value."""

    #: Lets the value go when it is dropped.
    hold: Any

    def __del__(self) -> None:
        _maps.pop(id(self), None)


def write(file: int, start: int, pieces: Sequence[bytes], buffers: Sequence[memoryview]) -> None:
    """Write a value into a file: the pieces of its stream, and each buffer at the next multiple of `ALIGNMENT`."""
    left: list[Union[bytes, memoryview]] = [*pieces]
    end = sum(map(len, pieces))
    for buffer in buffers:
        if gap := -end % ALIGNMENT:
            left.append(_PADDING[:gap])
        left.append(buffer)
        end = len(buffer)
    while left:
        written = os.pwritev(file, left[:MOST_PARTS], start)
        start += written
        done = 0
        while done < len(left) and written >= len(left[done]):
            written -= len(left[done])
            done += 1
        del left[:done]
        if written:
            left[0] = memoryview(left[0])[written:]


def view(
    file: int, start: int, lengths: Sequence[int], hold: object, mapped_from: int
) -> tuple[memoryview, list[memoryview]]:
    """Return the stream and the buffers of a value that :func:`write` has written.

    They can be written to, which no other process sees.

    ``hold`` is kept as long as the file is looked at. A value of fewer than ``mapped_from`` bytes is copied.
    """
    ends = []
    size = 0
    for length in lengths:
        ends.append((size, size + length))
        size += length + -length % ALIGNMENT
    is_mapped = size >= mapped_from and len(_maps) < _most_maps()
    memory = memoryview((is_mapped and _map(file, start, size, hold)) or _copy(file, start, size))
    first, *rest = (memory[begin:end] for begin, end in ends)
    return first, rest


def _copy(file: int, start: int, size: int) -> bytearray:
    copy = bytearray(size)
    left = memoryview(copy)
    while left:
        got = os.preadv(file, [left], start)
        if not got:
            raise EOFError("a value in shared memory is cut off")
        start += got
        left = left[got:]
    return copy


def _map(file: int, start: int, size: int, hold: object) -> Optional[_Map]:
    """Map a value, if a descriptor and a map are left."""
    arguments: dict[str, Any] = {} if NEEDS_DESCRIPTOR else {"trackfd": False}
    try:
        memory = _Map(
            file, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE, offset=start, **arguments
        )
    except OSError:
        return None
    memory.hold = hold
    _maps[id(memory)] = None
    return memory


def _most_maps() -> int:
    if not NEEDS_DESCRIPTOR:
        return MOST_MAPS
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_MAPS if limit == resource.RLIM_INFINITY else min(MOST_MAPS, limit // 8)
