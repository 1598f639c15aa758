"""The type variables of pools, and the types of their options."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Callable, Literal, Optional, TypedDict, Union

from gangline._broker import Nats
from gangline._options import Batch, Paths, Start, Time

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    State = TypeVar("State", default=Any)
    In = TypeVar("In", default=Any)
    Out = TypeVar("Out", default=Any)
    Handle = TypeVar("Handle", default=Any)
else:
    from typing import TypeVar

    State, In, Out, Handle = TypeVar("State"), TypeVar("In"), TypeVar("Out"), TypeVar("Handle")

__all__ = ["AnyBatch", "ExecutorOptions", "Handle", "In", "Out", "PoolOptions", "ServiceOptions", "State"]

#: How large lists are: at most a number, or as the pool chooses.
AnyBatch = Union[int, Literal["auto"], Batch]


class ExecutorOptions(TypedDict, total=False):
    """The options of workers: see :class:`Pool`."""

    retries: int
    retry_delay: Optional[Time]
    timeout: Optional[Time]
    start_timeout: Optional[Time]
    end_timeout: Optional[Time]
    max_restarts: Optional[int]
    min_workers: Optional[int]
    start: Start
    preload: bool
    threads: Optional[int]
    share: bool
    lock_gpus: Union[bool, Literal["wait"]]
    visible: Literal["own", "all"]
    nats: Union[str, Nats, None]
    report: Paths
    verbose: bool


class ServiceOptions(ExecutorOptions, total=False):
    """The options of a service that are those of a pool."""

    gpus: Union[str, int, Iterable[Union[str, int]], None]
    workers: Optional[int]
    devices: Union[str, Iterable[str], None]
    backend: Literal["processes", "threads"]
    batch_wait: Optional[Time]
    key: Optional[Callable[[Any], Any]]


class PoolOptions(ServiceOptions, total=False):
    """The options of a pool, save for ``end`` and ``batch``."""

    order: Literal["input", "completion"]
    window: Optional[int]
    journal: Union[str, os.PathLike[str], None]
    resume: bool
    progress: Union[bool, str]
