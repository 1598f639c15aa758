"""The broker of workers on other machines."""

from __future__ import annotations

import os
from typing import Any, Optional, Union

from gangline._native import read_time
from gangline._options import Time, at_least, seconds

__all__ = ["Nats", "checked_nats", "native_nats", "refuse_with_nats"]

#: The namespace at the broker: rights for it give nothing of another one.
NAMESPACE = "gangline-python"

#: Options that say where workers of this machine run, and how they are started.
OF_THIS_MACHINE = (
    "gpus",
    "workers",
    "devices",
    "threads",
    "share",
    "lock_gpus",
    "max_restarts",
    "end_timeout",
)


class Nats:
    """The broker of workers on other machines: ``nats=gangline.Nats("tls://broker.example:4222")``.

    ``url`` alone says the same: ``nats="nats://127.0.0.1:4222"``. It may hold a user and a password, or a token, which
    no text of this package shows.

    ====================  =========================================================================================
    ``credentials``       the file with the credentials, as ``nsc`` writes it
    ``root_certificates`` the file with the certificates to trust, in PEM
    ``insecure``          ``True`` allows another machine without encryption or credentials
    ``namespace``         the prefix of all names at the broker, which the workers have too
    ``max_workers``       how many workers take part at the same time; others wait
    ``wait_for``          how long to wait for workers, and for a broker that is gone
    ``lease_time``        the time without a sign of life after which a worker is lost
    ====================  =========================================================================================

    >>> Nats("tls://me:secret@broker.example:4222")
    Nats('tls://...@broker.example:4222')
    """

    def __init__(
        self,
        url: str,
        *,
        credentials: Union[str, os.PathLike[str], None] = None,
        root_certificates: Union[str, os.PathLike[str], None] = None,
        insecure: bool = False,
        namespace: str = NAMESPACE,
        max_workers: int = 64,
        wait_for: Time = 60,
        lease_time: Time = 10,
    ) -> None:
        if not isinstance(url, str):
            raise TypeError(f"url must be a text such as 'nats://127.0.0.1:4222', got {type(url).__name__}")
        at_least(1, max_workers=max_workers)
        for name, time in (("wait_for", wait_for), ("lease_time", lease_time)):
            read_time(name, seconds(time))
        self._url = url
        self.credentials: Optional[str] = None if credentials is None else os.fspath(credentials)
        self.root_certificates: Optional[str] = None if root_certificates is None else os.fspath(root_certificates)
        self.insecure: bool = insecure
        self.namespace: str = namespace
        self.max_workers: int = max_workers
        self.wait_for: Time = wait_for
        self.lease_time: Time = lease_time

    def has_workers_of(self, other: Nats) -> bool:
        """Whether both have the same workers."""
        return (self._url, self.namespace) == (other._url, other.namespace)

    def __repr__(self) -> str:
        scheme, _, rest = self._url.rpartition("@")[0].partition("://")
        shown = self._url.rpartition("@")[2]
        if "@" in self._url:
            shown = f"{scheme}://...@{shown}" if rest else f"...@{shown}"
        return f"Nats({shown!r})"


def checked_nats(nats: Union[str, Nats, None]) -> Optional[Nats]:
    """Return the broker that an option names.

    >>> checked_nats("nats://127.0.0.1:4222")
    Nats('nats://127.0.0.1:4222')
    """
    if nats is None or isinstance(nats, Nats):
        return nats
    if not isinstance(nats, str):
        raise TypeError(
            f"nats must be an address such as 'nats://127.0.0.1:4222', or a gangline.Nats, got {type(nats).__name__}"
        )
    return Nats(nats)


def refuse_with_nats(given: dict[str, Any]) -> None:
    """Refuse options that have no meaning for workers on other machines."""
    for name in OF_THIS_MACHINE:
        if given.get(name):
            raise ValueError(f"{name}= cannot be used with nats=: each worker has its own")
    for name, default in (("backend", "processes"), ("start", "spawn"), ("visible", "own")):
        if given.get(name, default) != default:
            raise ValueError(f"{name}={given[name]!r} cannot be used with nats=: its workers are processes elsewhere")


def native_nats(nats: Nats) -> dict[str, Any]:
    """Return the broker as the native part reads it."""
    return {
        "url": nats._url,
        "credentials": nats.credentials,
        "root_certificates": nats.root_certificates,
        "is_insecure": bool(nats.insecure),
        "namespace": nats.namespace,
        "max_workers": nats.max_workers,
        "wait_for": seconds(nats.wait_for),
        "lease_time": seconds(nats.lease_time),
    }
