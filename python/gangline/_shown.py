"""Objects of the package as one line, for ``repr``."""

from __future__ import annotations

import os
import reprlib
from typing import TYPE_CHECKING, Any, Callable, Optional

if TYPE_CHECKING:
    from gangline._options import Options
    from gangline._owner import WorkersOwner

__all__ = ["named", "one_line", "place_text", "shown_or_plain", "state_text", "values_text"]

#: Characters of a name.
LONGEST = 60


def shown_or_plain(shown: Callable[[], str], owner: object) -> str:
    """Return what a function says of an object; what ``object`` says, if its constructor has failed half-way."""
    try:
        return shown()
    except Exception:
        return object.__repr__(owner)


def one_line(text: str) -> str:
    """Return a text without line breaks, and no longer than a name.

    >>> one_line("a\\n  b"), len(one_line("x" * 100))
    ('a b', 60)
    """
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def named(function: Any) -> str:
    """Return the name of a function, or that of its class. It never fails.

    >>> named(len), named(lambda x: x)
    ('len', '<lambda>')
    """
    # Imported here: workers import this module for their records.
    from gangline._stage_options import name_of

    try:
        return one_line(name_of(function))
    except Exception:
        return one_line(type(function).__name__)


def place_text(options: Options) -> str:
    """Return where workers run, as the option that says it."""
    if options.nats is not None:
        return f"nats={options.nats!r}"
    if options.devices is not None:
        return f"devices={one_line(options.devices)!r}"
    if options.gpus is not None:
        shared = f", workers={options.workers}" if options.share and options.workers is not None else ""
        return f"gpus={one_line(options.gpus)!r}{shared}"
    return f"workers={options.count_workers()}"


def state_text(owner: WorkersOwner) -> Optional[str]:
    """Return whether it is open or closed; ``None`` if no worker was started."""
    # Without the lock, which another thread may have for long.
    if owner._owner != os.getpid():
        return f"of process {owner._owner}"
    if owner._is_closed:
        return "closed"
    has_started = owner._workers or owner._last is not None or owner._last_report is not None
    return "open" if has_started else None


class _Short(reprlib.Repr):
    """Shows values in short. One that cannot be shown has its class and address."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = LONGEST


def values_text(values: dict[str, Any]) -> str:
    """Return names with their values on one line.

    >>> values_text({"key": "a.mrc", "value": list(range(100))})
    "key='a.mrc', value=[0, 1, 2, 3, 4, 5, ...]"
    """
    short = _Short()
    return ", ".join(f"{name}={' '.join(short.repr(value).split())}" for name, value in values.items())
