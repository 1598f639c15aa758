"""The keys of items: what names them in records, and what a journal knows them by."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sized
from typing import Any, Callable, Optional

from gangline._errors import unicode_text
from gangline._plain import LARGEST_TEXT, is_plain

__all__ = ["check_keys", "input_text", "key_text", "keys_of", "report_names", "shown_text"]

#: Characters of a key that a report gets, of which it shows fewer.
LONGEST_NAME = 1000


def check_keys(items: object, keys: Optional[Iterable[Any]]) -> None:
    """Refuse a wrong number of keys, if both numbers are known."""
    if keys is not None and isinstance(items, Sized) and isinstance(keys, Sized) and len(items) != len(keys):
        raise ValueError(f"{len(keys)} keys for {len(items)} items")


def keys_of(keys: Optional[Iterable[Any]], key: Optional[Callable[[Any], Any]]) -> Callable[[int, Any], Any]:
    """Return a function for the key of an item, given its index and the item."""
    if keys is None:
        return lambda _, item: None if key is None else key(item)
    names = iter(keys)

    def next_key(index: int, _: Any) -> Any:
        try:
            return next(names)
        except StopIteration:
            raise ValueError(f"item {index} has no key: there are {index} keys") from None

    return next_key


def report_names() -> Callable[[Any, Any], str]:
    """Return a function for what reports call an item, which is called once for each item, in their order."""
    numbers = itertools.count()

    def name(key: Any, _: Any) -> str:
        number = next(numbers)
        return str(number) if key is None else shown_text(key)

    return name


def shown_text(key: Any) -> str:
    """Return a key as reports show it. One that is no text has what ``str`` makes of it.

    >>> shown_text(("slide", 3)), shown_text("caf\\udce9.mrc")
    ("('slide', 3)", 'caf\\\\udce9.mrc')
    """
    try:
        text = str(key)
    except Exception:
        text = f"<{type(key).__qualname__}>"
    return unicode_text(text[:LONGEST_NAME])


def key_text(key: Any, _: Any) -> str:
    """Return what a journal knows an item by that has a key."""
    text = _plain_text(key)
    if text is None:
        raise TypeError(f"with a journal, keys are plain JSON: texts, numbers, lists and objects; got {key!r}")
    return text


def input_text(_: Any, value: Any) -> str:
    """Return what a journal knows an item by that has no key."""
    text = _plain_text(value)
    if text is None or len(text) > LARGEST_TEXT:
        raise TypeError(
            "with a journal, inputs are plain JSON up to 64 KiB, texts, numbers, None, lists and objects of these, "
            "or have keys"
        )
    return text


def _plain_text(value: Any) -> Optional[str]:
    """Return the JSON of a plain value, or ``None``.

    >>> [_plain_text(value) for value in (7, True, "caf\\u00e9", [1.5, None], (1, 2), 1 << 63)]
    ['7', 'true', '"caf\\\\u00e9"', '[1.5, null]', None, None]
    """
    # Mostly a number or a name: each item of a journal has one.
    if type(value) is int:
        return repr(value) if -(1 << 63) <= value < 1 << 63 else None
    return json.dumps(value) if is_plain(value) else None
