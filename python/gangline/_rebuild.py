"""What pickles of functions and classes by value name in the process that reads them.

A worker imports nothing else for them. cloudpickle, which writes them, takes longer to import than Python to start.
"""

from __future__ import annotations

import sys
import types
from typing import Any, Callable, Optional

__all__ = [
    "cached",
    "cell",
    "code",
    "dispatched",
    "enumeration",
    "fill_class",
    "fill_dispatched",
    "fill_enumeration",
    "fill_function",
    "fill_module",
    "function",
    "main_function",
    "skeleton",
]


def code(*arguments: Any) -> types.CodeType:
    """Make a code object."""
    return types.CodeType(*arguments)


def cell(*content: Any) -> types.CellType:
    """Make a cell, which is empty without a content."""
    return types.CellType(*content)


def function(
    code: types.CodeType, names: dict[str, Any], name: Any, defaults: Any, closure: Optional[tuple[types.CellType, ...]]
) -> types.FunctionType:
    """Make a function whose globals are ``names``."""
    names["__builtins__"] = __builtins__
    return types.FunctionType(code, names, name, defaults, closure)


def main_function(code: types.CodeType, closure: Optional[tuple[types.CellType, ...]]) -> types.FunctionType:
    """Make a function whose globals are those of the main module, which ``load`` and ``work`` then share."""
    return types.FunctionType(code, sys.modules["__main__"].__dict__, None, None, closure)


def fill_function(function: types.FunctionType, state: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """Give a function what it names, once it exists: it may name itself."""
    own, slots = state
    vars(function).update(own)
    function.__globals__.update(slots.pop("__globals__"))
    # Their import was all that they are for.
    slots.pop("_cloudpickle_submodules")
    closure = slots.pop("__closure__")
    for mine, theirs in zip(function.__closure__ or (), closure or ()):
        try:
            mine.cell_contents = theirs.cell_contents
        except ValueError:
            continue  # It is empty.
    for name, value in slots.items():
        setattr(function, name, value)


def skeleton(
    metaclass: Callable[..., type], name: str, bases: tuple[Any, ...], names: dict[str, Any], *_: Any
) -> type[Any]:
    """Make a class with its slots and nothing else."""
    names = {sys.intern(key): value for key, value in names.items()}
    return types.new_class(name, bases, {"metaclass": metaclass}, lambda body: body.update(names))


def enumeration(
    bases: tuple[Any, ...], name: str, qualname: str, members: dict[str, Any], module: str, *_: Any
) -> type[Any]:
    """Make an enumeration with its members."""
    metaclass: Any = type(bases[-1])
    body = metaclass.__prepare__(name, bases)
    for member, value in members.items():
        body[member] = value
    made: type[Any] = metaclass.__new__(metaclass, name, bases, body)
    made.__module__, made.__qualname__ = module, qualname
    return made


def fill_class(made: Any, state: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """Give a class its attributes, once it exists: its methods may name it."""
    attributes, _ = state
    registered = attributes.pop("_abc_impl", ())
    for name, value in attributes.items():
        setattr(made, name, value)
    if "__firstlineno__" in attributes:
        # Setting the other attributes removes it.
        made.__firstlineno__ = attributes["__firstlineno__"]
    for subclass in registered:
        made.register(subclass)


def fill_enumeration(made: Any, state: tuple[dict[str, Any], dict[str, dict[str, Any]]]) -> None:
    """Give an enumeration its methods, and its members what ``__init__`` gave them."""
    attributes, own = state
    fill_class(made, (attributes, {}))
    for name, member in made.__members__.items():
        vars(member).update(own[name])


def fill_module(module: types.ModuleType, names: dict[str, Any]) -> None:
    """Give a module its names, once it exists: its functions may name it."""
    vars(module).update(names)


def cached(function: Callable[..., Any], maxsize: Optional[int], typed: bool) -> Any:
    """Make a function with a cache of its own."""
    import functools

    return functools.lru_cache(maxsize, typed)(function)


def dispatched(function: Callable[..., Any]) -> Any:
    """Make a function of ``functools.singledispatch``."""
    import functools

    return functools.singledispatch(function)


def fill_dispatched(function: Any, others: dict[type, Callable[..., Any]]) -> None:
    """Give such a function those for single types, once it exists: they may name it."""
    for kind, other in others.items():
        function.register(kind, other)
