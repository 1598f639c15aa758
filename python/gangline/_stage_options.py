"""The options of a stage of a pipeline."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, Callable, Literal, Optional, TypedDict, Union

from gangline._broker import Nats, checked_nats
from gangline._options import Options, Start, Time, at_least, device_list, gpu_list, one_of

__all__ = ["StageOptions", "checked_options", "name_of"]


class StageOptions(TypedDict, total=False):
    """The options of a stage beside ``batch``: those of a pool, a window and a name."""

    gpus: Union[str, int, Iterable[Union[str, int]], None]
    workers: Optional[int]
    devices: Union[str, Iterable[str], None]
    backend: Literal["processes", "threads"]
    finish: Optional[Callable[..., Any]]
    end: Optional[Callable[[Any], object]]
    batch_wait: Optional[Time]
    window: Optional[int]
    retries: int
    retry_delay: Optional[Time]
    timeout: Optional[Time]
    start_timeout: Optional[Time]
    end_timeout: Optional[Time]
    max_restarts: Optional[int]
    min_workers: Optional[int]
    start: Start
    threads: Optional[int]
    share: bool
    lock_gpus: Union[bool, Literal["wait"]]
    visible: Literal["own", "all"]
    nats: Union[str, Nats, None]
    name: Optional[str]


def checked_options(given: dict[str, Any], whole: Options) -> Options:
    """Check the options of a stage that are those of its workers. ``verbose`` is that of the whole pipeline."""
    allowed = {*StageOptions.__annotations__, "batch"} - {"backend", "finish", "end", "name", "start"}
    for name in given:
        if name not in allowed:
            raise TypeError(f"a stage has no option {name}=")
    visible = given.pop("visible", "own")
    given["nats"] = checked_nats(given.get("nats"))
    batch = given.get("batch")
    one_of("visible", visible, ("own", "all"))
    one_of("lock_gpus", given.get("lock_gpus", False), (True, False, "wait"))
    at_least(1, batch=None if batch == "auto" else batch)
    at_least(1, **{name: given.get(name) for name in ("workers", "min_workers", "threads")})
    at_least(0, **{name: given.get(name) for name in ("retries", "max_restarts")})
    if given.get("batch_wait") is not None and batch is None:
        raise ValueError("batch_wait is how long a list waits for more inputs, so it needs batch=n or batch='auto'")
    for name, listed in (("gpus", gpu_list), ("devices", device_list)):
        if given.get(name) is not None:
            given[name] = listed(given[name])
    options = Options(**given, sees_all=visible == "all", verbose=whole.verbose)
    least, most = options.min_workers or 1, options.count_workers()
    if least > most:
        raise ValueError(f"min_workers must be at most the number of workers, which is {most}, got {least}")
    return options


def name_of(function: Any) -> str:
    """Return what a stage is called by its function.

    >>> name_of(name_of), name_of(functools.partial(name_of, 1)), name_of(functools.partial)
    ('name_of', 'name_of', 'partial')
    """
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", None)
    return name if isinstance(name, str) else type(function).__name__
