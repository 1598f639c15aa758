"""The outcome of one item."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

__all__ = ["Record"]


class Record(NamedTuple):
    """What became of one input of a pool.

    >>> record = Record(index=0, key="a.mrc", value=3, error=None, gpus=("0",), seconds=0.5, attempts=1)
    >>> record.ok
    True
    """

    #: The place of the input in its call, from 0.
    index: int  # type: ignore[assignment]
    #: What ``keys`` or ``key`` gave for the input, else ``None``.
    key: Any
    #: What ``work`` returned; ``None`` if the item failed.
    value: Any
    #: Why the item failed: one line, and the traceback below it. ``None`` if it succeeded.
    error: Optional[str]
    #: The ids of the GPUs of its worker, if that is on this machine.
    gpus: tuple[str, ...]
    #: How long its last attempt took.
    seconds: float
    #: The number of attempts; 0 if it never reached a worker.
    attempts: int
    #: The number of its worker, from 0; ``None`` if it never reached one, or if that is on another machine.
    worker: Optional[int] = None

    @property
    def ok(self) -> bool:
        """Whether the item succeeded."""
        return self.error is None

    def __repr__(self) -> str:
        from gangline._shown import values_text

        return f"Record({values_text(self._asdict())})"
