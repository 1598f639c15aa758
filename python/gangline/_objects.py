"""Values of a pool whose workers are threads: the objects themselves."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Callable

__all__ = ["Objects", "Shared"]


class Objects:
    """Packs each value into a tuple with it alone, in place of a pickle."""

    def pack(self, values: Sequence[Any]) -> list[tuple[Any]]:
        """Return a tuple for each value.

        >>> Objects().pack(["a", 1])
        [('a',), (1,)]
        """
        return [(value,) for value in values]

    def unpack(self, packed: Sequence[tuple[Any]]) -> list[Any]:
        """Return the values.

        >>> Objects().unpack([("a",), (1,)])
        ['a', 1]
        """
        return [value for (value,) in packed]


class Shared(Objects):
    """The driver's side: what makes a worker on a thread, from its place."""

    setup: Callable[[Any], Any]

    def __init__(self, functions: Any) -> None:
        from gangline._worker import start_here

        self.setup = functools.partial(start_here, functions)
