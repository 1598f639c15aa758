"""Which values are the same after they were written as JSON and read again."""

from __future__ import annotations

from typing import Any

__all__ = ["LARGEST_TEXT", "is_plain"]

#: The longest text of a plain value, in characters.
LARGEST_TEXT = 64 << 10

#: The largest number of values in a plain one. Looking at more would take longer than pickling.
MOST_VALUES = 4_096

#: The largest number of levels of a plain value.
MOST_LEVELS = 100


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
                if any(type(key) is not str for key in each):
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
