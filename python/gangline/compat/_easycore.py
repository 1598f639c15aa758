"""easycore's parallel runners."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal, Optional, Union

from gangline._context import Context
from gangline._errors import PoolError
from gangline._pool import Pool
from gangline._runner import ConsumerContext, Runner, consume, producers
from gangline.compat._cfg import CfgNode

__all__ = ["OrderedRunner", "UnorderedRunner"]

_DEVICE = re.compile(r"cpu|cuda(:\d+)?")


class BaseRunner:
    """A producer on each device, and a consumer in this process. Override the static methods.

    The constructor starts the producers. A call ends with an error if one of them cannot be prepared.
    A producer's ``cfg`` is its own, and lives as long as the producer. The consumer's is new in each call.
    ``queue_scale`` bounds how many items are read ahead, by a number for each device; without it the pool's own bound
    holds.
    """

    _order: Literal["input", "completion"]

    def __init__(
        self,
        devices: Union[int, str, Iterable[str]],
        cfg: Optional[CfgNode] = None,
        queue_scale: Optional[float] = None,
    ) -> None:
        self._devices = device_list(devices)
        self.cfg: CfgNode = CfgNode() if cfg is None else cfg
        self._queue_scale = queue_scale
        self._pool: Optional[Pool[Any]] = None
        self.activate()

    @staticmethod
    def producer_init(device: str, cfg: CfgNode) -> None:
        """Prepare a producer, once."""

    @staticmethod
    def producer_work(device: str, cfg: CfgNode, data: Any) -> Any:
        """Return what the consumer gets for an input."""
        return data

    @staticmethod
    def producer_end(device: str, cfg: CfgNode) -> None:
        """End a producer, when the runner is closed."""

    @staticmethod
    def consumer_init(cfg: CfgNode) -> None:
        """Prepare the consumer, once in each call."""

    @staticmethod
    def consumer_work(cfg: CfgNode, data: Any) -> None:
        """Take an output of a producer."""

    @staticmethod
    def consumer_end(cfg: CfgNode) -> Any:
        """Return the result of the call."""
        return None

    @property
    def is_activate(self) -> bool:
        """Whether the runner can be called."""
        return self._pool is not None

    def activate(self) -> None:
        """Make a closed runner usable again, with ``cfg`` as it is now."""
        if self._pool is not None:
            return
        count = len(self._devices)
        scale = self._queue_scale
        self._runner = StaticRunner(type(self), self._devices, writable(self.cfg))
        self._pool = producers(
            self._runner,
            # As in the original, where `device` is a name, of one of all GPUs if it is so called.
            workers=count,
            min_workers=count,
            preload=True,
            visible="all",
            order=self._order,
            window=None if scale is None else max(count, int(count * scale)),
        )

    def __call__(self, data_iter: Iterable[Any]) -> Any:
        """Run all inputs, and return what ``consumer_end`` returns."""
        if self._pool is None:
            raise PoolError("The runner is closed. Please activate it.")
        return consume(self._runner, self._pool.imap(data_iter))

    def close(self) -> None:
        """End the producers."""
        if self._pool is not None:
            pool, self._pool = self._pool, None
            pool.close()


class OrderedRunner(BaseRunner):
    """Outputs come to the consumer in the order of the inputs."""

    _order = "input"


class UnorderedRunner(BaseRunner):
    """Outputs come to the consumer as they are made."""

    _order = "completion"


def device_list(devices: Union[int, str, Iterable[str]]) -> list[str]:
    """Return the devices as a list.

    >>> device_list(2), device_list("cuda:1"), device_list(["cuda", "cpu"])
    (['cpu', 'cpu'], ['cuda:1'], ['cuda:0', 'cpu'])
    """
    if isinstance(devices, bool):
        raise TypeError("devices must be a number or a list of names, got a bool")
    names = ["cpu"] * devices if isinstance(devices, int) else [devices] if isinstance(devices, str) else list(devices)
    if not names:
        raise ValueError(f"at least one device is needed, got {devices!r}")
    for name in names:
        if not isinstance(name, str) or not _DEVICE.fullmatch(name):
            raise ValueError(f'a device is "cpu" or "cuda:0", got {name!r}')
    return ["cuda:0" if name == "cuda" else name for name in names]


def writable(cfg: CfgNode) -> CfgNode:
    """Return a copy that hooks can write to, also of a frozen one."""
    own = cfg.copy()
    own.freeze(False)
    return own


class StaticRunner(Runner[Any, Any, Any]):
    """The static methods of a class as hooks."""

    def __init__(self, hooks: type[BaseRunner], devices: list[str], cfg: CfgNode) -> None:
        self._hooks = hooks
        self._devices = devices
        self._cfg = cfg

    def producer_init(self, context: Context) -> tuple[str, CfgNode]:
        """Return the device and the ``cfg`` of a producer."""
        device, cfg = self._devices[context.worker], self._cfg.copy()
        self._hooks.producer_init(device, cfg)
        return device, cfg

    def producer_work(self, context: Context, state: tuple[str, CfgNode], input: Any) -> Any:
        """Work on an input."""
        return self._hooks.producer_work(*state, input)

    def producer_end(self, context: Context, state: tuple[str, CfgNode]) -> None:
        """End a producer."""
        self._hooks.producer_end(*state)

    def consumer_init(self, context: ConsumerContext) -> CfgNode:
        """Return the ``cfg`` of a call."""
        cfg = self._cfg.copy()
        self._hooks.consumer_init(cfg)
        return cfg

    def consumer_work(self, context: ConsumerContext, state: CfgNode, output: Any) -> None:
        """Take an output."""
        self._hooks.consumer_work(state, output)

    def consumer_end(self, context: ConsumerContext, state: CfgNode) -> Any:
        """Return the result of a call."""
        return self._hooks.consumer_end(state)
