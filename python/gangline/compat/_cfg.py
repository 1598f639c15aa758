"""easycore's configuration: a dictionary with attributes."""

from __future__ import annotations

import ast
import builtins
import copy as copying
import re
from typing import Any, Optional

__all__ = ["CfgNode"]

_NAME = re.compile("[a-zA-Z_][a-zA-Z0-9_]*")


class CfgNode(dict[str, Any]):
    """Values by attribute and by key.

    As in easycore, dictionaries within ``init_dict`` become nodes, and a text there is the literal that it spells:
    ``"(1, 2)"`` is a tuple.

    >>> cfg = CfgNode({"model": {"layers": "3"}})
    >>> cfg.model.layers + 1
    4
    >>> cfg.rate = 0.1
    >>> cfg["rate"]
    0.1
    """

    _frozen = False

    def __init__(self, init_dict: Optional[dict[str, Any]] = None, copy: bool = True) -> None:
        super().__init__()
        given = {} if init_dict is None else init_dict
        for key, value in (copying.deepcopy(given) if copy else given).items():
            if not isinstance(key, str) or not _NAME.match(key):
                raise KeyError(f"a key begins with a letter or _, got {key!r}")
            self[key] = decoded(value)

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        if self._frozen:
            raise AttributeError(f"Attempted to set {name} to {value}, but the CfgNode is frozen.")
        self[name] = value

    def __delattr__(self, name: str) -> None:
        try:
            del self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __repr__(self) -> str:
        return f"CfgNode({super().__repr__()})"

    def __str__(self) -> str:
        return str(self.dict())

    def __deepcopy__(self, memo: dict[int, Any]) -> CfgNode:
        new = CfgNode()
        for key, value in self.items():
            new[key] = copying.deepcopy(value, memo)
        new.__dict__["_frozen"] = self._frozen
        return new

    def copy(self) -> CfgNode:
        """Return a deep copy, frozen if this is."""
        return copying.deepcopy(self)

    def dict(self) -> builtins.dict[str, Any]:
        """Return plain dictionaries.

        >>> CfgNode({"a": {"b": 1}}).dict()
        {'a': {'b': 1}}
        """
        return {key: value.dict() if isinstance(value, CfgNode) else value for key, value in self.items()}

    def freeze(self, frozen: bool = True) -> None:
        """Refuse new values of attributes from now on, in nodes below too; or allow them again."""
        self.__dict__["_frozen"] = frozen
        for value in self.values():
            if isinstance(value, CfgNode):
                value.freeze(frozen)

    def is_frozen(self) -> bool:
        """Whether attributes cannot be set."""
        return self._frozen

    def merge(self, other: builtins.dict[str, Any]) -> None:
        """Take over the values of another node, which win.

        >>> cfg = CfgNode({"a": {"b": 1, "c": 2}})
        >>> cfg.merge(CfgNode({"a": {"c": 3}}))
        >>> cfg.dict()
        {'a': {'b': 1, 'c': 3}}
        """
        if self._frozen:
            raise AttributeError("a frozen CfgNode cannot be merged into")
        for key, value in copying.deepcopy(other).items():
            own = self.get(key)
            if isinstance(own, CfgNode) and isinstance(value, CfgNode):
                own.merge(value)
            else:
                self[key] = value


def decoded(value: Any) -> Any:
    """Return a node for a dictionary, and what a text spells."""
    if isinstance(value, CfgNode):
        return value
    if isinstance(value, dict):
        return CfgNode(value, copy=False)
    if isinstance(value, str):
        try:
            return ast.literal_eval(value)
        except (ValueError, SyntaxError):
            return value
    return value
