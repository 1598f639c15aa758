"""Classes and functions that a worker cannot import, such as those of the main script: they travel by value."""

from __future__ import annotations

import functools
import importlib.machinery
import io
import os
import pickle
import sys
import threading
import types
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Callable, NamedTuple, Optional

__all__ = [
    "Carried",
    "Definitions",
    "Group",
    "is_by_name",
    "is_importable",
    "main_globals",
    "reference_of_method",
    "surroundings",
]

#: Names of the main module. The second one is that of a process of ``multiprocessing``.
MAIN = ("__main__", "__mp_main__")

#: The number of groups from other processes that one holds without an object that uses them.
KEPT_GROUPS = 256

#: How a pickler writes an object by reduction: the function that rebuilds it, its arguments, and more.
Reduction = Any


class Group(NamedTuple):
    """Definitions that were pickled together, after the pool was made. A value that uses one carries the group."""

    name: bytes
    #: The name, and the pickle.
    blob: bytes
    #: The groups that this one refers to, in the order of their definition.
    needs: tuple[Group, ...]


class Carried:
    """The groups that came with a value, while it is being read."""

    def __init__(self, blobs: Iterable[Any]) -> None:
        #: In the order of their definition.
        self.blobs = {bytes(blob[:8]): blob for blob in blobs}

    def group(self, name: bytes) -> Group:
        """Return a group, to which those before it may belong too."""
        groups: list[Group] = []
        for each, blob in self.blobs.items():
            groups.append(Group(each, bytes(blob), tuple(groups)))
            if each == name:
                return groups[-1]
        raise pickle.UnpicklingError("a value names a definition that it does not carry")


class Definitions:
    """The numbers of the classes and functions that travel by value, in one process and for one pool.

    A definition of the setup has a number, and each worker has it from the start. One that is met later belongs to a
    group, and its key is the name of the group and the place in it.
    """

    def __init__(self, resolve: Callable[..., Any], show: Callable[[Sequence[Any]], None]) -> None:
        #: What is written in place of an object, by ``id``. ``NotImplemented`` stands for its module and name.
        self.references: dict[int, Reduction] = {}
        self._resolve = resolve
        self._show = show
        # An `id` is of one object only while that lives.
        self._kept: list[Any] = []
        self._setup: Sequence[Any] = ()
        # A class that a task makes for each value must not live for ever.
        self._later: weakref.WeakValueDictionary[tuple[bytes, int], Any] = weakref.WeakValueDictionary()
        self._groups: dict[int, tuple[weakref.ref[Any], Reduction, Group]] = {}
        self._recent: deque[Sequence[Any]] = deque(maxlen=KEPT_GROUPS)
        self._lock = threading.Lock()

    def set_up(self, definitions: Sequence[Any]) -> None:
        """Number the definitions that are in the setup of each worker."""
        self._setup = definitions
        for number, definition in enumerate(definitions):
            self.references[id(definition)] = (self._resolve, (number,))

    def find(self, number: int) -> Any:
        """Return the definition of the setup with this number."""
        return self._setup[number]

    def find_later(self, place: int, name: bytes, carried: Carried) -> Any:
        """Return a definition of a group, which is rebuilt unless this process has it."""
        found = self._later.get((name, place))
        return self._rebuild(name, carried)[place] if found is None else found

    def keep_by_name(self, named: Any) -> None:
        """Write this class or function by its module and name from now on, without another look."""
        self._kept.append(named)
        self.references[id(named)] = NotImplemented

    def later_reference(self, definition: Any) -> Optional[tuple[Reduction, Group]]:
        """Return what is written for a definition that was met after the pool was made, and its group."""
        found = self._groups.get(id(definition))
        return None if found is None else found[1:]

    def define(self, definition: Any) -> tuple[Reduction, Group]:
        """Pickle a definition with those that it uses, once, and return what is written for it."""
        while True:
            found = self.later_reference(definition)
            if found is not None:
                return found
            # Imported for the first definition only: it takes longer than Python's own start.
            from gangline._by_value import pickle_group

            pickled = pickle_group(definition, self)
            name = os.urandom(8)
            group = Group(name, name + pickled.blob, in_order(pickled.needs))
            with self._lock:
                # Another thread may have been faster. Then what it has defined is referred to.
                if not any(id(each) in self._groups for each in pickled.recorded):
                    for place, each in enumerate(pickled.recorded):
                        self._add(group, place, each)

    def _rebuild(self, name: bytes, carried: Carried) -> Sequence[Any]:
        group = carried.group(name)
        reader = pickle.Unpickler(io.BytesIO(group.blob[8:]))
        reader.load()
        definitions = reader.load()
        with self._lock:
            for place, definition in enumerate(definitions):
                # One that is alive here is the same one, also if its neighbours are gone.
                found = self._later.get((name, place))
                if found is None:
                    self._add(group, place, definition)
                else:
                    definitions[place] = found
            self._recent.append(definitions)
        self._show(definitions)
        return definitions  # type: ignore[no-any-return]

    def _add(self, group: Group, place: int, definition: Any) -> None:
        number = id(definition)
        # Another object may come to lie at the same place.
        forget = weakref.ref(definition, lambda _: self._groups.pop(number, None))
        self._groups[number] = (forget, (self._resolve, (place, group.name)), group)
        self._later[group.name, place] = definition


def in_order(groups: Iterable[Group]) -> tuple[Group, ...]:
    """Return groups and those that they refer to, each once and behind those."""
    ordered: dict[bytes, Group] = {}
    for group in groups:
        for needed in (*group.needs, group):
            ordered[needed.name] = needed
    return tuple(ordered.values())


def is_by_name(thing: Any) -> bool:
    """Whether a worker gets a class or function by importing its module.

    >>> is_by_name(Definitions), is_by_name(lambda: None)
    (True, False)
    """
    module = getattr(thing, "__module__", None)
    if not isinstance(module, str) or not is_importable(module):
        return False
    found: Any = sys.modules.get(module)
    for part in thing.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is thing


def is_importable(module: str) -> bool:
    """Whether a worker can import a module by its name. A program can also make modules, or load them from anywhere.

    >>> is_importable("os.path"), is_importable("__main__"), is_importable("made.by.hand")
    (True, False, False)
    """
    if module in MAIN or module not in sys.modules:
        return module == "builtins"
    cloudpickle = sys.modules.get("cloudpickle")
    if cloudpickle is not None:
        # The program may ask for a package by value, as for other libraries that use cloudpickle.
        for name in cloudpickle.list_registry_pickle_by_value():
            if module == name or module.startswith(f"{name}."):
                return False
    # Packages put modules into themselves that have no file.
    return is_found(module.partition(".")[0], tuple(sys.path))


@functools.cache
def is_found(name: str, _: tuple[Any, ...]) -> bool:
    """Whether a worker finds a module that is in no package, and whether it is the one that is loaded here.

    The present ``sys.path`` is an argument since answers are kept.
    """
    if name in sys.builtin_module_names:
        return True
    loaded = sys.modules.get(name)
    # A module may have put another object into its place.
    origin = getattr(getattr(loaded, "__spec__", None), "origin", getattr(loaded, "__file__", None))
    for finder in sys.meta_path:
        spec = found_by(finder, name, None)
        if spec is None and finder is importlib.machinery.PathFinder:
            # Where else a worker looks takes longer to find out.
            spec = found_by(finder, name, search_path())
        if spec is not None:
            # Another file of this name is another module.
            return None in (spec.origin, origin) or os.path.realpath(str(spec.origin)) == os.path.realpath(str(origin))
    return False


def found_by(finder: Any, name: str, path: Optional[list[str]]) -> Any:
    """Return what a finder of modules knows of one, or ``None``."""
    try:
        return finder.find_spec(name, path)
    except (AttributeError, ImportError, ValueError):
        return None


def search_path() -> list[str]:
    """Return where a worker looks for modules: the places of ``sys.path``, also after a change of the directory.

    A relative place, as ``''`` is, means the present directory. If it has meant another one, the modules that were
    imported from there are found too, behind all others.
    """
    places = []
    for place in sys.path:
        if not isinstance(place, str):
            continue
        try:
            places.append(os.path.abspath(place))
        except OSError:
            # The present directory was deleted.
            continue
    places = list(dict.fromkeys(places))
    searched = {os.path.abspath(place) for place in sys.path_importer_cache if os.path.isabs(place)}
    searched |= {getattr(finder, "path", "") for finder in sys.path_importer_cache.values()}
    for module in list(sys.modules.values()):
        spec = getattr(module, "__spec__", None)
        if spec is None or not spec.has_location or "." in spec.name or not isinstance(spec.origin, str):
            continue
        folder = os.path.dirname(spec.origin)
        if spec.submodule_search_locations is not None:
            folder = os.path.dirname(folder)
        if folder in searched and folder not in places:
            places.append(folder)
    return places


def surroundings() -> tuple[list[str], list[str], dict[str, Any]]:
    """Return where a worker looks for modules, its arguments, and the names that its main module begins with."""
    main = sys.modules["__main__"]
    names = {name: getattr(main, name) for name in ("__file__", "__package__") if hasattr(main, name)}
    return search_path(), list(getattr(sys, "argv", ())), names


def main_globals() -> dict[str, Any]:
    """Return the names of the main module."""
    return sys.modules["__main__"].__dict__


def reference_of_method(method: types.MethodType) -> Reduction:
    """Return how a bound method is written: by its name if that finds it, and otherwise by its function."""
    function, owner = method.__func__, method.__self__
    name = getattr(function, "__name__", "")
    if getattr(owner, name, None) == method:
        return getattr, (owner, name)
    return types.MethodType, (function, owner)


def parts_of(value: Any) -> Iterator[Any]:
    """Walk through nested tuples and lists."""
    if isinstance(value, (tuple, list)):
        for part in value:
            yield from parts_of(part)
    elif value is not None:
        yield value
