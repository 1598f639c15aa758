"""The driver's main module in a worker, as ``multiprocessing`` has it with the method spawn."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
import types
from typing import Any, Callable, NoReturn, Optional

__all__ = ["continue_with", "describe", "load", "main_file", "pool_starts", "prepare"]


class PoolStarted(BaseException):
    """The main module, run in a worker, has come to where the driver uses its pool, and must not go on."""


_description: Optional[dict[str, Any]] = None
#: The thread that runs the main module.
_loader: Optional[int] = None
#: What a worker does once the main module has come to where the driver uses its pool.
_go_on: Optional[Callable[[], None]] = None


def describe() -> dict[str, Any]:
    """Say in the driver how a worker finds the main module, and other settings of the interpreter."""
    main = sys.modules["__main__"]
    # Values whose class is defined there come back under this name.
    sys.modules.setdefault("__mp_main__", main)
    spec = getattr(main, "__spec__", None)
    path = main_file()
    return {
        "path": list(sys.path),
        "argv": list(getattr(sys, "argv", [])),
        "main_name": None if spec is None else spec.name,
        "main_path": None if path is None or spec is not None else os.path.abspath(path),
    }


def main_file() -> Optional[str]:
    """Return the file of the main module. A script that was read from standard input has a name that is none."""
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    return path if path is not None and os.path.exists(path) else None


def prepare(description: dict[str, Any]) -> None:
    """Take over the driver's settings in a worker. The main module is run when a name in it is needed."""
    global _description
    sys.path[:] = description["path"]
    sys.argv[:] = description["argv"]
    _description = description


def continue_with(go_on: Optional[Callable[[], None]]) -> None:
    """Set what this process does if it runs the main module and that comes to a pool."""
    global _go_on
    _go_on = go_on


def pool_starts() -> None:
    """Leave the main module, if it is being run here.

    All that the driver had defined before is known by then, so the module needs no ``if __name__ == "__main__"``.

    The module never goes on. An exception would not do: it would run the ``finally`` blocks of the module, and so the
    end of a script, in each worker. So the rest is done below the module's frames, and then the process ends.
    """
    global _loader
    process = sys.modules.get("multiprocessing.process")
    if process is not None and getattr(process.current_process(), "_inheriting", False):
        # It would run the whole pool, whose tasks may start such processes again.
        raise RuntimeError(
            "a process of multiprocessing is running this script anew, and must not use a pool: put that below "
            "`if __name__ == '__main__':`"
        )
    if _loader is None:
        return
    go_on = _go_on
    if go_on is None or _loader != threading.get_ident():
        raise PoolStarted
    _loader = None
    end_after(go_on)


def end_after(go_on: Callable[[], None]) -> NoReturn:
    """Call ``go_on``, and end this process as the interpreter does, without a return to the frames above."""
    status = 1
    try:
        go_on()
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except KeyboardInterrupt:
        sys.excepthook(*sys.exc_info())
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, OSError, ValueError):
                stream.flush()
        os._exit(status)


def load() -> None:
    """Run the driver's main module once, under the name ``__mp_main__``, in a worker."""
    global _description, _loader
    description, _description = _description, None
    if description is None:
        return
    name, path = description["main_name"], description["main_path"]
    module = types.ModuleType("__mp_main__")
    if name is not None:
        import importlib.machinery
        import importlib.util

        # A folder or an archive that was started comes first in the path.
        is_folder = name == "__main__"
        find = importlib.machinery.PathFinder.find_spec
        spec = find(name, sys.path[:1]) if is_folder else importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            raise ImportError(f"the main module {name} is not found by a worker")
        code = spec.loader.get_code(name)  # type: ignore[attr-defined]
        module.__file__, module.__package__ = spec.origin, spec.parent
    elif path is not None:
        with open(path, "rb") as file:
            code = compile(file.read(), path, "exec")
        module.__file__ = path
    else:
        raise ImportError("functions that were typed in need cloudpickle: pip install cloudpickle, or use a module")
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module
    _loader = threading.get_ident()
    try:
        exec(code, module.__dict__)
    except PoolStarted:
        pass
    finally:
        _loader = None
