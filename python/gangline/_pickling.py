"""Values and functions as bytes, for the driver of a pool and for its workers.

A value is a pickle of protocol 5 in pieces, and buffers beside it. A class or function that a worker cannot import,
such as those of the main script, is a *definition*. Those that the functions of a pool name are in the setup that each
worker reads once; later ones travel beside each value that uses them. In both cases the value itself holds a number
only, and what comes back is an object of the driver's own class.
"""

from __future__ import annotations

import copyreg
import functools
import io
import pickle
import struct
import sys
import threading
import types
from collections.abc import Sequence
from typing import Any, Optional, Union

from gangline._definitions import (
    Carried,
    Definitions,
    Group,
    Reduction,
    is_by_name,
    parts_of,
    reference_of_method,
    surroundings,
)

__all__ = ["Packed", "Receiver", "Sender", "Unreadable"]

#: A packed value: the pieces of its pickle, of which most values have one, and its buffers.
Packed = tuple[list[bytes], list[memoryview]]

#: Buffers below this size, in bytes, are part of the pickle.
SMALL = 4 << 10

#: A pickler that has written more bytes than this is not used again: its table of objects has grown, and is emptied
#: entry by entry.
LARGE_STREAM = 8 << 10

#: Types of values that need no pickler of ours; and those that need none if they are small.
PLAIN = frozenset((bool, float, int, type(None)))
TEXTS = frozenset((bytes, str))

#: In how many parts of a value that cannot be pickled a reason is looked for.
EXAMINED = 100

#: How long a thread of a worker keeps the interpreter if another one wants it, in seconds. Python's own is 0.005.
SWITCH_INTERVAL = 0.0005

#: Stands in a pickle for the function that looks a definition up: five bytes, where its name has 40. Not in the ranges
#: that Python's documentation leaves to applications and to distributions with small numbers, so no other has it.
EXTENSION = 0x676C6E67

#: The last byte of a pickle is a dot. That of a value with definitions beside it is this one, behind their number.
WITH_DEFINITIONS = b"D"

_COUNT = struct.Struct("<Ic")


class Unreadable:
    """Stands for a value that could not be rebuilt. A value itself can be an exception."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Reading(threading.local):
    """Whose definitions the numbers of a pickle mean that this thread is reading."""

    definitions: Optional[Definitions] = None
    carried: Optional[Carried] = None


_reading = _Reading()


def resolve(place: int, group: Optional[bytes] = None) -> Any:
    """Return the definition that a pickle names by its number."""
    if _reading.definitions is None:
        raise pickle.UnpicklingError("a value of a pool was read outside of it")
    if group is None:
        return _reading.definitions.find(place)
    return _reading.definitions.find_later(place, group, _reading.carried or Carried(()))


copyreg.add_extension(__name__, "resolve", EXTENSION)  # type: ignore[arg-type,unused-ignore]


class _Sink:
    """Where a pickler writes. It hands large texts and `bytes` over as they are, without a copy."""

    __slots__ = ("write",)

    def __init__(self, pieces: list[bytes]) -> None:
        self.write = pieces.append


#: Types that pickle refuses, or rebuilds by a name that need not lead back to them.
SPECIAL: frozenset[type] = frozenset(
    (
        classmethod,
        functools._lru_cache_wrapper,
        io.TextIOWrapper,
        memoryview,
        property,
        staticmethod,
        types.CellType,
        types.CodeType,
        types.FunctionType,
        types.GetSetDescriptorType,
        types.MappingProxyType,
        types.MethodType,
        types.ModuleType,
        type({}.items()),
        type({}.keys()),
        type({}.values()),
    )
)


class _Pickler(pickle.Pickler):
    """Writes one value after another."""

    def __init__(self, definitions: Definitions) -> None:
        self._pieces: list[bytes] = []
        self._buffers: list[memoryview] = []
        self._definitions = definitions
        # A copy of the reference: this is looked up for each object.
        self._references = definitions.references
        self._groups: dict[bytes, Group] = {}
        self._by_value: Any = None
        super().__init__(_Sink(self._pieces), 5, buffer_callback=self._is_small)

    def pack(self, value: Any) -> Packed:
        """Return a value as pieces and buffers."""
        self.dump(value)
        pieces, buffers = self._pieces[:], self._buffers[:]
        self._pieces.clear()
        self._buffers.clear()
        self.clear_memo()
        if self._groups:
            carried = list(self._groups.values())
            pieces.append(_COUNT.pack(len(carried), WITH_DEFINITIONS))
            buffers += (memoryview(group.blob) for group in carried)
            self._groups.clear()
        # Functions of one value share their globals, and not with those of another one.
        self._by_value = None
        return pieces, buffers

    def _is_small(self, buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < SMALL:
            return True
        self._buffers.append(raw)
        return False

    def reducer_override(self, value: Any) -> Reduction:
        """Return how an object is written, or ``NotImplemented`` for pickle's own way."""
        reference = self._references.get(id(value))
        if reference is not None:
            return reference
        kind = type(value)
        if kind in SPECIAL:
            return self._special(value)
        if issubclass(kind, type):
            return self._definition(value)
        return NotImplemented

    def _definition(self, value: Any) -> Reduction:
        later = self._definitions.later_reference(value)
        if later is None:
            if is_by_name(value):
                self._definitions.keep_by_name(value)
                return NotImplemented
            if value.__module__ == "builtins":
                # One without a name there, such as that of code.
                return self._by_value_pickler().reducer_override(value)
            later = self._definitions.define(value)
        reference, group = later
        for needed in (*group.needs, group):
            self._groups[needed.name] = needed
        return reference

    def _special(self, value: Any) -> Reduction:
        if type(value) is types.MethodType:
            return reference_of_method(value)
        if type(value) is memoryview:
            return reference_of_view(value)
        if type(value) is types.FunctionType:
            return self._function(value)
        by_value = self._by_value_pickler()
        reduction = by_value.reducer_override(value)
        rebuild = by_value.dispatch_table.get(type(value))
        return rebuild(value) if reduction is NotImplemented and rebuild is not None else reduction

    def _function(self, function: types.FunctionType) -> Reduction:
        owner = owner_of(function)
        if isinstance(owner, type) and not is_by_name(function):
            return getattr, (owner, function.__name__)
        if owner is not None or self._definitions.later_reference(function):
            return self._definition(function)
        # One without a name is written into the value: there may be one for each.
        return self._by_value_pickler().by_value(function)

    def _by_value_pickler(self) -> Any:
        if self._by_value is None:
            from gangline._by_value import ValuePickler

            self._by_value = ValuePickler(io.BytesIO(), self._definitions)
        return self._by_value


def is_named(function: Any) -> bool:
    """Whether a worker imports a function or class, so that no other way to pickle is needed."""
    return isinstance(function, (type, types.BuiltinFunctionType, types.FunctionType)) and is_by_name(function)


def owner_of(function: types.FunctionType) -> Any:
    """Return the module or class in which a function is found by its name, or ``None``."""
    *outer, name = function.__qualname__.split(".")
    owner: Any = sys.modules.get(function.__module__)
    for part in outer:
        owner = getattr(owner, part, None)
    return owner if getattr(owner, name, None) is function else None


def reference_of_view(view: memoryview) -> Reduction:
    """Return how a ``memoryview`` is written: its memory, format and shape."""
    if not view.c_contiguous:
        return view_of, (view.tobytes(), view.format, view.shape)
    return view_of, (pickle.PickleBuffer(view), view.format, view.shape)


def view_of(memory: Any, form: str, shape: tuple[int, ...]) -> memoryview:
    """Return memory as a ``memoryview`` with a format and a shape."""
    flat = memoryview(memory).cast("B")
    if form == "B" and len(shape) == 1:
        return flat
    return flat.cast(form, shape) if form != "B" else flat.cast("B", shape)  # type: ignore[call-overload,unused-ignore]


def explained(value: Any, error: BaseException) -> BaseException:
    """Return an error that names what a function in a value uses and cannot be sent, or the error itself."""
    if not isinstance(error, (AttributeError, TypeError)):
        return error
    from gangline._by_value import blame

    parts = value[:EXAMINED] if isinstance(value, (list, tuple)) else (value,)
    try:
        reason = next(filter(None, (blame(part, None, set()) for part in parts)), None)
    except Exception:
        # Looking for a reason runs code of the value too.
        return error
    return error if reason is None else pickle.PicklingError(f"{reason} ({error})")


class _Values:
    """Packs and unpacks values with the definitions of one pool."""

    def __init__(self) -> None:
        self._definitions = Definitions(resolve, self._show)
        self._picklers: list[_Pickler] = []

    def pack(self, values: Sequence[Any]) -> list[Union[Packed, BaseException]]:
        """Pickle each value. What cannot be pickled gives its exception."""
        packed: list[Union[Packed, BaseException]] = []
        try:
            pickler = self._picklers.pop()
        except IndexError:
            pickler = _Pickler(self._definitions)
        for value in values:
            try:
                kind = type(value)
                if kind in PLAIN or (kind in TEXTS and len(value) < SMALL):
                    packed.append(([pickle.dumps(value, 5)], []))
                    continue
                pieces, buffers = pickler.pack(value)
            except BaseException as error:
                self._raise_interrupt(error)
                packed.append(explained(value, error))
            else:
                packed.append((pieces, buffers))
                if len(pieces) == 1 and len(pieces[0]) < LARGE_STREAM:
                    continue
            pickler = _Pickler(self._definitions)
        self._picklers.append(pickler)
        return packed

    def unpack(self, packed: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Rebuild each value from its pickle, in one piece, and its buffers. One that fails gives an `Unreadable`.

        Arrays and views use the memory of the buffers, and can be written to if that can. A tuple with one value, which
        was rebuilt before, gives that value.
        """
        values = []
        # Code of a value may read values of another pool.
        outer = _reading.definitions, _reading.carried
        _reading.definitions, _reading.carried = self._definitions, None
        try:
            for each in packed:
                if len(each) == 1:
                    values.append(each[0])
                    continue
                stream, buffers = each
                try:
                    if stream[-1] == WITH_DEFINITIONS[0]:
                        count, _ = _COUNT.unpack(stream[-_COUNT.size :])
                        _reading.carried = Carried(buffers[-count:])
                        buffers = buffers[:-count]
                    values.append(pickle.loads(stream, buffers=buffers))
                except BaseException as error:
                    self._raise_interrupt(error)
                    values.append(Unreadable(error))
                _reading.carried = None
        finally:
            _reading.definitions, _reading.carried = outer
        return values

    def _show(self, definitions: Sequence[Any]) -> None:
        """Take note of definitions that were rebuilt."""

    def _raise_interrupt(self, error: BaseException) -> None:
        """Let Ctrl-C through, which belongs to no value."""


class Sender(_Values):
    """The driver's side of a pool: what its workers need, values for them, and their outputs.

    ``functions`` are what the workers get from :attr:`Receiver.functions`: nested tuples and lists of functions, such
    as ``(load, work, end)``. All stages of a pipeline have one sender, so that each knows the definitions of all.
    Raises ``pickle.PicklingError`` if a function names what cannot travel, and ``RuntimeError`` in a process of
    ``multiprocessing`` that is running the script anew.
    """

    #: The bytes that a :class:`Receiver` is made from.
    setup: bytes

    def __init__(self, functions: Any) -> None:
        super().__init__()
        refuse_second_run()
        if all(map(is_named, parts_of(functions))):
            blob = pickle.dumps(functions, 5) + pickle.dumps([])
        else:
            from gangline._by_value import pickle_functions

            blob, definitions, _ = pickle_functions(functions)
            self._definitions.set_up(definitions)
        head = (sys.version_info[:2], *surroundings())
        self.setup = pickle.dumps(head, 5) + blob

    def _raise_interrupt(self, error: BaseException) -> None:
        # Threads of the pool get none, so there it is what a value's own code has raised.
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise error


def refuse_second_run() -> None:
    """Fail while ``multiprocessing`` runs the script anew: that process would run the whole pool."""
    process = sys.modules.get("multiprocessing.process")
    if process is not None and getattr(process.current_process(), "_inheriting", False):
        raise RuntimeError(
            "a process of multiprocessing is running this script anew, and must not use a pool: put that below "
            "`if __name__ == '__main__':`"
        )


class Receiver(_Values):
    """A worker's side of a pool.

    Making it gives this process the driver's ``sys.path`` and ``sys.argv``, and a ``__main__`` of its own, which holds
    what the functions name. Nothing of the driver's script is run.
    """

    #: The functions that the sender was given, rebuilt.
    functions: Any

    def __init__(self, setup: bytes) -> None:
        super().__init__()
        file = io.BytesIO(setup)
        version, path, arguments, names = self._reader(file).load()
        if version != sys.version_info[:2]:
            ours, theirs = (".".join(map(str, each)) for each in (sys.version_info[:2], version))
            raise RuntimeError(f"this worker has Python {ours}, and the driver Python {theirs}: use the same one")
        self._main = sys.modules["__main__"] = types.ModuleType("__main__")
        vars(self._main).update(__builtins__=__builtins__)
        self._take_surroundings(path, arguments, names)
        reader = self._reader(file)
        # A thread that unpickles the next list lets `work` go on at once.
        sys.setswitchinterval(SWITCH_INTERVAL)
        self.functions = reader.load()
        definitions = reader.load()
        self._definitions.set_up(definitions)
        self._show(definitions)

    def _reader(self, file: io.BytesIO) -> pickle.Unpickler:
        """Return what reads the setup."""
        return pickle.Unpickler(file)

    def _take_surroundings(self, path: list[str], arguments: list[str], names: dict[str, Any]) -> None:
        """Give this process what the driver has."""
        sys.path[:] = path
        sys.argv[:] = arguments
        vars(self._main).update(names)

    def _show(self, definitions: Sequence[Any]) -> None:
        # Tasks may pickle by name, as joblib and PyTorch do.
        for definition in definitions:
            if definition.__module__ == "__main__" and "." not in definition.__qualname__:
                vars(self._main).setdefault(definition.__qualname__, definition)
