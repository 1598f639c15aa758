"""The modules that functions are from, and that functions of the main script name: what a fork server imports."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from typing import Any

from gangline._definitions import MAIN, is_by_name, is_importable, parts_of

__all__ = ["modules_of"]


def modules_of(functions: Any) -> list[str]:
    """Return the names of the modules that a worker imports for functions, which may be in nested tuples and lists.

    A module that a function imports when it runs is not found.

    >>> modules_of((types.new_class, lambda: functools.partial))
    ['types', 'functools']
    """
    # In their order, each once.
    names: dict[str, None] = {}
    seen: set[int] = set()
    waiting = list(parts_of(functions))
    while waiting:
        value = waiting.pop(0)
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, types.ModuleType):
            names[value.__name__] = None
        elif isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)):
            if is_by_name(value):
                names[value.__module__] = None
            elif not isinstance(value, types.BuiltinFunctionType):
                waiting += named_by(value)
        elif isinstance(value, functools.partial):
            waiting += [value.func, *value.args, *value.keywords.values()]
        elif isinstance(value, types.MethodType):
            waiting += [value.__func__, type(value.__self__)]
        elif callable(value):
            waiting.append(type(value))
    return [name for name in names if name not in (*MAIN, "builtins") and is_importable(name)]


def named_by(value: Any) -> Iterator[Any]:
    """Yield modules, functions and classes that a function or class of the main script names."""
    if isinstance(value, type):
        for each in (*value.__bases__, *vars(value).values()):
            if isinstance(each, (staticmethod, classmethod)):
                yield each.__func__
            elif isinstance(each, (type, types.FunctionType)):
                yield each
        return
    for name in names_in(value.__code__):
        each = value.__globals__.get(name)
        if isinstance(each, (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)):
            yield each
    for cell in value.__closure__ or ():
        try:
            each = cell.cell_contents
        except ValueError:
            continue  # It is empty.
        if callable(each) or isinstance(each, types.ModuleType):
            yield each


def names_in(code: types.CodeType) -> Iterator[str]:
    """Yield the names that a function uses, also those of functions in it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names_in(constant)
