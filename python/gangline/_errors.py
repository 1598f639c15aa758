"""Exceptions, and texts of exceptions that cross a process boundary."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Optional

if TYPE_CHECKING:
    from gangline._records import Record

__all__ = [
    "BadRequest",
    "Closed",
    "DeadlineExceeded",
    "Description",
    "Forked",
    "Full",
    "JobFailed",
    "NoWorkers",
    "PoolError",
    "describe",
    "first_line",
    "full_text",
    "is_lost_gpu",
    "is_out_of_memory",
    "unicode_text",
]

#: Errors after which CUDA refuses the process all further work: parts of their texts and of their names in the driver
#: and the runtime, letters only. CUDA's documentation says of each that the process must be ended and started again.
LOST_GPU = (
    "devicesideasserttriggered",
    "cudaerrorassert",
    "illegalmemoryaccess",
    "cudaerrorillegaladdress",
    "illegalinstruction",
    "misalignedaddress",
    "invalidprogramcounter",
    "hardwarestackerror",
    "unspecifiedlaunchfailure",
    "cudaerrorlaunchfail",
    "launchtimedout",
    "cudaerrorlaunchtimeout",
    "uncorrectableecc",
    "eccuncorrectable",
)


class PoolError(RuntimeError):
    """The pool cannot go on: no worker could be started, or too few are left; or it is closed."""


class Closed(PoolError):
    """The pool is closed, or was closed or terminated before the call was answered."""


class Forked(PoolError):
    """The pool is of another process, of which this one is a fork. Make a pool in this process."""


class NoWorkers(PoolError):
    """Too few workers are left: ``load`` has failed, or workers cannot be started. The next call starts them anew."""


class DeadlineExceeded(PoolError):
    """The call was not answered by its deadline: see ``Service.with_deadline``."""


class Full(PoolError):
    """The queue has no place for the call: see ``Service.try_submit``."""


class BadRequest(Exception):
    """Raise it in ``work`` for an input that no attempt could succeed with.

    ``gangline serve`` answers 400, and its caller gets the text. Nothing tries the item again.
    """


class JobFailed(Exception):
    """An item failed. Raised by calls, and by ``Pool.map`` for the first one in the order of the inputs."""

    #: The failed item: its key, its error with the traceback, its GPUs and attempts.
    record: Record

    def __init__(self, record: Record) -> None:
        super().__init__(record)
        self.record = record

    def __str__(self) -> str:
        key = "" if self.record.key is None else f" ({self.record.key})"
        return unicode_text(f"item {self.record.index}{key} failed: {self.record.error}")


def unicode_text(text: str) -> str:
    """Escape halves of surrogate pairs, which UTF-8 and JSON lack. Python has them in names that are not UTF-8.

    >>> unicode_text("caf\\udce9.mrc")
    'caf\\\\udce9.mrc'
    """
    return text.encode(errors="backslashreplace").decode()


def first_line(error: BaseException) -> str:
    """``ValueError: bad``, also if the exception cannot be printed.

    >>> first_line(KeyError("bad"))
    "KeyError: 'bad'"
    """
    name = type(error).__qualname__
    try:
        text = str(error)
    except Exception as unprintable:
        text = f"<its text failed: {type(unprintable).__name__}>"
    if isinstance(error, SystemExit):
        text = f"{text}: the task called sys.exit"
    return unicode_text(f"{name}: {text}" if text else name)


def full_text(error: BaseException) -> str:
    """The first line, an empty line, and the traceback without the frames of this package."""
    return f"{first_line(error)}\n\n{traceback_text(error)}"


def traceback_text(error: BaseException) -> str:
    """Return the traceback as Python prints it, without the frames of this package."""
    # Imported for the first error only: it takes half as long as Python's own start.
    import traceback

    shown = traceback.TracebackException.from_exception(error, capture_locals=False)
    here = __file__.rsplit("/", 1)[0] + "/"
    kept = [frame for frame in shown.stack if not frame.filename.startswith(here)]
    shown.stack = traceback.StackSummary.from_list(kept)
    return unicode_text("".join(shown.format()).rstrip())


#: The largest text of a description, in characters.
LARGEST_TEXT = 64 << 10


class Description(NamedTuple):
    """An exception as it travels from a worker. The exception itself may hold what cannot be sent or rebuilt."""

    #: Its class as tracebacks show it: with the module, save for Python's own and the main module's.
    name: str
    #: ``ValueError: bad``.
    line: str
    #: As Python prints it, without the frames of this package.
    traceback: str
    is_out_of_memory: bool
    #: Whether the process can no longer use its GPU, so that another one must take its place.
    is_lost_gpu: bool
    #: Whether no attempt could succeed with this input.
    is_bad_request: bool


def describe(error: BaseException) -> Description:
    """Say what is known of an exception, also if its own methods fail.

    >>> describe(KeyError("bad"))[:2]
    ('KeyError', "KeyError: 'bad'")
    """
    kind = type(error)
    module = "" if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}."
    line = first_line(error)
    try:
        traceback = traceback_text(error)
    except Exception:
        traceback = line
    return Description(
        unicode_text(f"{module}{kind.__qualname__}"),
        line[:LARGEST_TEXT],
        traceback[:LARGEST_TEXT],
        is_out_of_memory(error),
        is_lost_gpu(error),
        isinstance(error, BadRequest),
    )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device, or the process, ran out of memory. PyTorch's class is recognised by name.

    >>> is_out_of_memory(MemoryError())
    True
    >>> is_out_of_memory(RuntimeError("CUDA error: out of memory"))
    True
    >>> is_out_of_memory(ValueError("out of focus"))
    False
    """
    if isinstance(error, MemoryError):
        return True
    if any(parent.__name__ == "OutOfMemoryError" for parent in type(error).__mro__):
        return True
    return isinstance(error, RuntimeError) and "out of memory" in first_line(error).lower()


def is_lost_gpu(error: BaseException) -> bool:
    """Whether this process can no longer use its GPU, as after an illegal address in a kernel.

    Frameworks are not asked: each has classes of its own, and all of them quote CUDA's text or the name of its error.
    What the exception was raised from counts too.

    >>> is_lost_gpu(RuntimeError("CUDA error: device-side assert triggered"))
    True
    >>> is_lost_gpu(RuntimeError("CUDA error: out of memory"))
    False
    """
    seen: Optional[BaseException] = error
    # The chain ends, save where a program has closed it by hand.
    for _ in range(16):
        if seen is None:
            return False
        text = "".join(filter(str.isalpha, first_line(seen).lower()))
        if any(lost in text for lost in LOST_GPU):
            return True
        seen = seen.__cause__ or seen.__context__
    return False
