"""Functions on their way to other machines, and a worker's side of them."""

from __future__ import annotations

import base64
import importlib
import io
import os
import pickle
import pickletools
import sys
import sysconfig
import types
from collections.abc import Iterable, Sequence
from typing import Any, Optional

from gangline._modules import modules_of
from gangline._pickling import Receiver, Sender, Unreadable

__all__ = ["SERVED", "NatsReceiver", "setup_text", "version_of"]

#: What this process serves: ``python``, or ``python:`` and the one module whose functions it calls.
SERVED = "GANGLINE_SERVE"


#: What a pickle does beside naming things and holding plain values.
CALLS = frozenset(("BUILD", "EXT1", "EXT2", "EXT4", "INST", "NEWOBJ", "NEWOBJ_EX", "OBJ", "REDUCE"))


def setup_text(sender: Sender, functions: Any) -> str:
    """Return what a worker elsewhere makes the functions from: the versions of their modules, and the setup."""
    versions = {name: version for name in modules_of(functions) if (version := version_of(name)) is not None}
    return base64.b64encode(pickle.dumps(versions, 5) + sender.setup).decode()


def version_of(name: str) -> Optional[str]:
    """Return what tells copies of a module apart: the version of its package, or a digest of its source.

    ``None`` for a module of Python itself or of this package, of which both sides have the same.
    """
    import hashlib
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as version_of_package

    top = name.partition(".")[0]
    module = sys.modules.get(name)
    origin = getattr(module, "__file__", None)
    if top == "gangline" or origin is None or is_of_python(origin):
        return None
    version = getattr(sys.modules.get(top), "__version__", None)
    if isinstance(version, str):
        return f"version {version}"
    try:
        return f"version {version_of_package(top)}"
    except PackageNotFoundError:
        pass
    try:
        with open(origin, "rb") as file:
            return f"the source {hashlib.sha256(file.read()).hexdigest()[:12]}"
    except OSError:
        return None


def is_of_python(origin: str) -> bool:
    """Whether a file is of Python's standard library."""
    paths = sysconfig.get_paths()
    folder = os.path.dirname(os.path.abspath(origin))
    if any(folder.startswith(paths[name]) for name in ("purelib", "platlib")):
        return False
    return any(folder.startswith(paths[name]) for name in ("stdlib", "platstdlib"))


class NatsReceiver(Receiver):
    """A worker's side of a pool whose driver may be on another machine.

    Modules are found where this process finds them: the driver's ``sys.path`` names folders of its own machine. If the
    process serves one module, nothing else is rebuilt from what the driver sends.
    """

    def __init__(self, text: str) -> None:
        served = os.environ.get(SERVED, "python").partition(":")[2]
        self._served = served or None
        file = io.BytesIO(base64.b64decode(text))
        versions = self._reader(file).load()
        self._refuse_others(versions)
        super().__init__(file.read())

    def _reader(self, file: io.BytesIO, buffers: Iterable[Any] = ()) -> pickle.Unpickler:
        if self._served is None:
            return pickle.Unpickler(file, buffers=buffers)
        refuse_calls(file, self._served)
        return _ServedUnpickler(file, self._served, buffers)

    def _take_surroundings(self, path: list[str], arguments: list[str], names: dict[str, Any]) -> None:
        """Keep those of this process."""

    def unpack(self, packed: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Rebuild each value. If one module is served, from plain ones only, such as lists of numbers."""
        if self._served is None:
            return super().unpack(packed)
        return [self._plain(each) for each in packed]

    def _plain(self, packed: tuple[Any, ...]) -> Any:
        if len(packed) == 1:
            return packed[0]
        stream, buffers = packed
        try:
            return _PlainUnpickler(io.BytesIO(stream), buffers=buffers).load()
        except Exception as error:
            return Unreadable(error)

    def _refuse_others(self, versions: dict[str, str]) -> None:
        """Fail if a module of the functions is not the driver's."""
        for name, theirs in versions.items():
            if self._served is not None and name != self._served:
                raise PermissionError(f"this worker serves functions of {self._served} only, and was asked for {name}")
            importlib.import_module(name)
            ours = version_of(name)
            if ours != theirs:
                raise RuntimeError(f"this worker has {ours} of {name}, and the driver {theirs}: use the same one")


def refuse_calls(file: io.BytesIO, served: str) -> None:
    """Fail if the next pickle calls a function, makes an object or changes one: one that names functions does not."""
    start = file.tell()
    found = next((opcode.name for opcode, _, _ in pickletools.genops(file) if opcode.name in CALLS), None)
    file.seek(start)
    if found is not None:
        raise PermissionError(f"this worker serves functions of {served} only, by their names, and was sent a {found}")


class _ServedUnpickler(pickle.Unpickler):
    """Finds the functions and classes of one module, and nothing else."""

    def __init__(self, file: io.BytesIO, served: str, buffers: Iterable[Any]) -> None:
        super().__init__(file, buffers=buffers)
        self._served = served

    def find_class(self, module: str, name: str) -> Any:
        """Return a function or class that this module has defined by this name."""
        found = getattr(sys.modules.get(module), name, None) if module == self._served and "." not in name else None
        if isinstance(found, (type, types.FunctionType)) and found.__module__ == module:
            return found
        raise PermissionError(f"this worker serves functions of {self._served} only, and was sent {module}.{name}")


class _PlainUnpickler(pickle.Unpickler):
    """Rebuilds plain values: texts, bytes, numbers, ``None``, and lists, tuples, sets and dictionaries of these."""

    def find_class(self, module: str, name: str) -> Any:
        """Fail: a plain value names nothing."""
        raise PermissionError(f"this worker takes plain values only, and was sent a {module}.{name}")
