"""The outcome of one item."""

from typing import Any, Generic, NamedTuple, Optional

from gangline._types import Out

__all__ = ["Record"]

class Record(NamedTuple, Generic[Out]):
    """What became of one input of a pool."""

    #: The place of the input in its call, from 0.
    index: int  # type: ignore[assignment]
    #: What ``keys`` or ``key`` gave for the input, else ``None``.
    key: Any
    #: What ``work`` returned; ``None`` if the item failed.
    value: Out
    #: Why the item failed: one line, and the traceback below it. ``None`` if it succeeded.
    error: Optional[str]
    #: The ids of the GPUs of its worker.
    gpus: tuple[str, ...]
    #: How long its last attempt took.
    seconds: float
    #: The number of attempts; 0 if it never reached a worker.
    attempts: int
    #: The number of its worker, from 0; ``None`` if it never reached one.
    worker: Optional[int] = None

    @property
    def ok(self) -> bool:
        """Whether the item succeeded."""
