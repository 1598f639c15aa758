"""Pickling by value, with cloudpickle: functions, classes, and the globals that they name."""

from __future__ import annotations

import dis
import functools
import importlib
import io
import pickle
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Optional

from cloudpickle import cloudpickle  # type: ignore[import-untyped,import-not-found,unused-ignore]

from gangline import _rebuild as rebuild
from gangline._definitions import (
    MAIN,
    Definitions,
    Group,
    Reduction,
    is_by_name,
    is_importable,
    main_globals,
    parts_of,
    reference_of_method,
)

#: The flag of code whose variables have places: that of functions, and not of the body of a class.
CO_OPTIMIZED = 1

#: Functions of ``functools.lru_cache`` and ``functools.cache``.
CACHED = type(functools.lru_cache(len))

#: Attributes of classes that hold a lock or weak references beside these.
DESCRIPTORS: dict[type, Sequence[str]] = {
    functools.cached_property: ("attrname",),
    functools.singledispatchmethod: ("dispatcher",),
}

__all__ = ["Pickled", "ValuePickler", "blame", "pickle_functions", "pickle_group"]


class Pickled(NamedTuple):
    """Definitions in one pickle."""

    blob: bytes
    #: Those that have a number from now on.
    recorded: Sequence[Any]
    #: The groups that it refers to.
    needs: Sequence[Group]


class ValuePickler(cloudpickle.Pickler):  # type: ignore[misc,no-any-unimported,unused-ignore]
    """Writes functions and classes by value if a worker cannot import them."""

    def __init__(self, file: Any, definitions: Optional[Definitions], *, is_setup: bool = False) -> None:
        super().__init__(file, protocol=5)
        self.recorded: list[Any] = []
        self.needs: list[Group] = []
        self._definitions = definitions
        self._is_setup = is_setup

    def reducer_override(self, value: Any) -> Reduction:  # noqa: PLR0911
        """Return how an object is written, or ``NotImplemented`` for pickle's own way."""
        kind = type(value)
        if kind is types.FunctionType or issubclass(kind, type):
            reference = self._known(value)
            return self._definition(value) if reference is None else reference
        if kind is types.CodeType:
            return rebuild.code, arguments_of(value)
        if kind is types.CellType:
            return rebuild.cell, content_of(value)
        if kind is types.MethodType:
            return reference_of_method(value)
        if kind is types.ModuleType:
            if value.__name__ in MAIN or is_importable(value.__name__):
                return importlib.import_module, (value.__name__,)
            return module_by_value(value)
        if isinstance(value, io.TextIOWrapper) and value not in (sys.stdout, sys.stderr):
            # cloudpickle would read the whole file, and send its text.
            raise TypeError(f"cannot pickle {type_name(value)!r} object")
        if kind in DESCRIPTORS:
            return kind, (value.func,), {name: vars(value)[name] for name in DESCRIPTORS[kind]}
        module = getattr(value, "__module__", None)
        if isinstance(module, str) and not is_importable(module) and kind not in self.dispatch_table:
            return without_name(value)
        return NotImplemented

    def _known(self, value: Any) -> Reduction:
        if self._definitions is None:
            return None
        reference = self._definitions.references.get(id(value))
        if reference is None:
            later = self._definitions.later_reference(value)
            if later is not None:
                reference, group = later
                self.needs.append(group)
        return reference

    def _definition(self, value: Any) -> Reduction:
        if isinstance(value, types.FunctionType):
            if is_by_name(value):
                return NotImplemented
            if "." not in value.__qualname__:
                self.recorded.append(value)
            return self.by_value(value)
        reduction = cloudpickle._class_reduce(value)
        if reduction is NotImplemented:
            if is_by_name(value):
                return NotImplemented
            reduction = cloudpickle._dynamic_class_reduce(value)
        if len(reduction) == 2:
            # One that has no name, such as that of ``None``.
            return reduction
        self.recorded.append(value)
        make, arguments, state, *_ = reduction
        if make is cloudpickle._make_skeleton_enum:
            return enumeration(value, arguments, state)
        return (*with_slots(value, arguments, state), None, None, rebuild.fill_class)

    def by_value(self, function: types.FunctionType) -> Reduction:
        """Return how a function is written with what it names."""
        if function.__globals__ is vars(functools) and hasattr(function, "registry"):
            # One of ``functools.singledispatch``, whose cache holds weak references.
            others = dict(function.registry)
            return rebuild.dispatched, (others.pop(object),), others, None, None, rebuild.fill_dispatched
        _, (code, names, name, defaults, closure), state, *_ = self._dynamic_function_reduce(function)
        slots = state[1]
        for used in names_of_class_bodies(function.__code__):
            if used in function.__globals__:
                slots["__globals__"].setdefault(used, function.__globals__[used])
        if self._is_setup and function.__globals__ is main_globals():
            return rebuild.main_function, (code, closure), state, None, None, rebuild.fill_function
        arguments = (code, names, name, defaults, closure)
        return rebuild.function, arguments, state, None, None, rebuild.fill_function


def arguments_of(code: types.CodeType) -> tuple[Any, ...]:
    """Return what makes a code object. cloudpickle leaves its file out, which tracebacks show."""
    arguments: tuple[Any, ...] = cloudpickle._code_reduce(code)[1]
    instead = "<dynamic-code>"
    return tuple(code.co_filename if isinstance(part, str) and part == instead else part for part in arguments)


def content_of(cell: types.CellType) -> tuple[Any, ...]:
    """Return what is in a cell, which may be nothing yet."""
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()


def with_slots(kind: type, arguments: Reduction, state: Reduction) -> tuple[Reduction, Reduction, Reduction]:
    """Give a class its slots when it is made: later, they would be a plain attribute."""
    metaclass, name, bases, names, *_ = arguments
    attributes, more = state
    slots = kind.__dict__.get("__slots__")
    if slots:
        names = {**names, "__slots__": slots if isinstance(slots, str) else tuple(slots)}
        attributes = {name: value for name, value in attributes.items() if name != "__slots__"}
    return rebuild.skeleton, (metaclass, name, bases, names), (attributes, more)


def enumeration(kind: Any, arguments: Reduction, state: Reduction) -> Reduction:
    """Return how an enumeration is written, with second names of its members, and what these have beside a value."""
    bases, name, qualname, _, module, *_ = arguments
    members = {each: member.value for each, member in kind.__members__.items()}
    attributes = {each: value for each, value in state[0].items() if each not in members}
    own = {}
    for each, member in kind.__members__.items():
        # An enumeration itself gives its members the names that begin so.
        own[each] = {key: value for key, value in vars(member).items() if not key.startswith("_")}
    arguments = (bases, name, qualname, members, module)
    return rebuild.enumeration, arguments, (attributes, own), None, None, rebuild.fill_enumeration


def without_name(value: Any) -> Reduction:
    """Return how an object is written that pickle would look up by a name that a worker lacks."""
    if isinstance(value, CACHED):
        parameters = value.cache_parameters()
        return rebuild.cached, (value.__wrapped__, parameters["maxsize"], parameters["typed"])
    reduction = value.__reduce_ex__(5)
    if not isinstance(reduction, str):
        return reduction
    if hasattr(value, "__supertype__"):
        return type(value), (value.__name__, value.__supertype__)
    if hasattr(value, "__value__"):
        return type(value), (value.__name__, value.__value__)
    if type(value).__module__ == "typing":
        return type(value), (value.__name__,)
    raise TypeError(f"cannot pickle {type_name(value)!r} object")


def module_by_value(module: types.ModuleType) -> Reduction:
    """Return how a module is written that was made by the program."""
    names = vars(module).copy()
    for name in ("__builtins__", "__spec__", "__loader__"):
        names.pop(name, None)
    return types.ModuleType, (module.__name__,), names, None, None, rebuild.fill_module


def pickle_group(definition: Any, definitions: Definitions) -> Pickled:
    """Pickle a definition with those that it uses and that have no number yet."""
    return _pickle(definition, definitions, is_setup=False)


def pickle_functions(functions: Any) -> Pickled:
    """Pickle the functions of a pool, with all that they name."""
    return _pickle(functions, None, is_setup=True)


def _pickle(value: Any, definitions: Optional[Definitions], *, is_setup: bool) -> Pickled:
    file = io.BytesIO()
    pickler = ValuePickler(file, definitions, is_setup=is_setup)
    try:
        pickler.dump(value)
    except Exception as error:
        reason = next(filter(None, (blame(part, definitions, set()) for part in parts_of(value))), None)
        if reason is None:
            raise
        raise pickle.PicklingError(f"{reason} ({error})") from None
    if not is_setup and not any(each is value for each in pickler.recorded):
        pickler.recorded.append(value)
    # The same pickler: what it has written before is a reference.
    pickler.dump(pickler.recorded)
    return Pickled(file.getvalue(), pickler.recorded, pickler.needs)


def blame(value: Any, definitions: Optional[Definitions], seen: set[int]) -> Optional[str]:
    """Say which name of which function cannot travel."""
    for user, kind, name, used in uses(value):
        if id(used) in seen:
            continue
        seen.add(id(used))
        try:
            ValuePickler(io.BytesIO(), definitions).dump(used)
        except Exception:
            deeper = blame(used, definitions, seen)
            if deeper is not None:
                return deeper
            return (
                f"`{user}` uses the {kind} `{name}`, and an object of type {type_name(used)} cannot be sent to "
                f"workers: make it in `load`"
            )
    return None


def uses(value: Any) -> Iterator[tuple[str, str, str, Any]]:
    """Yield what functions name, also those of a class: the function, what it names, and how."""
    if isinstance(value, functools.partial):
        yield from ((str(value.func), "argument", str(place), part) for place, part in enumerate(value.args))
        yield from ((str(value.func), "argument", name, part) for name, part in value.keywords.items())
        yield from uses(value.func)
    elif isinstance(value, types.MethodType):
        yield from uses(value.__func__)
        owner = value.__self__
        named = getattr(owner, "__dict__", {})
        if not isinstance(owner, type):
            yield from ((value.__qualname__, "attribute", f"self.{name}", part) for name, part in named.items())
    elif isinstance(value, type) and not is_by_name(value):
        for name, part in list(vars(value).items()):
            inner = getattr(part, "__func__", getattr(part, "fget", part))
            if isinstance(inner, types.FunctionType):
                yield from uses(inner)
            elif not name.startswith("__"):
                yield value.__qualname__, "attribute", name, part
        for base in value.__bases__:
            yield from uses(base)
    elif isinstance(value, types.FunctionType) and not is_by_name(value):
        yield from uses_of_function(value)


def uses_of_function(function: types.FunctionType) -> Iterator[tuple[str, str, str, Any]]:
    """Yield the globals of a function, its variables of functions around it, and its defaults."""
    user = function.__qualname__
    for name in global_names(function.__code__):
        if name in function.__globals__:
            yield user, "global", name, function.__globals__[name]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            yield user, "variable", name, cell.cell_contents
        except ValueError:
            continue  # It has no value yet.
    for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        yield user, "default", repr(default), default


def global_names(code: types.CodeType) -> list[str]:
    """Return the globals that code names, also within functions and classes in it."""
    names = [step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"]
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names += global_names(constant)
    return list(dict.fromkeys(names + names_of_class_bodies(code)))


def names_of_class_bodies(code: types.CodeType) -> list[str]:
    """Return the names that the bodies of classes within a function look up. cloudpickle leaves them out."""
    names: list[str] = []
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names += names_of_class_bodies(constant)
            if not constant.co_flags & CO_OPTIMIZED:
                names += constant.co_names
    return names


def type_name(value: Any) -> str:
    """Return the name of an object's class, with its module."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
