"""easycore's configuration: a dictionary with attributes."""

from __future__ import annotations

import ast
import builtins
import copy as copying
import io
import os
import re
from typing import IO, Any, Optional, Union

from gangline._native import read_yaml, write_yaml

__all__ = ["CfgNode", "HierarchicalCfgNode"]

_BASE = "__BASE__"

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

    Files are YAML 1.1, without dates and without tags. A tuple is written as the text that it is read from.

    >>> cfg.shape = (2, 3)
    >>> print(CfgNode.dump(cfg), end="")
    model:
      layers: 3
    rate: 0.1
    shape: (2, 3)
    >>> CfgNode.load("shape: (2, 3)").shape
    (2, 3)
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

    @classmethod
    def open(cls, file: Union[str, os.PathLike[str], IO[Any]], encoding: str = "utf-8") -> CfgNode:
        """Read a file, given by its path or open. ``HierarchicalCfgNode.open`` reads those that it is based on too."""
        if isinstance(file, (str, os.PathLike)):
            with open(file, encoding=encoding) as opened:
                return cls.load(opened.read())
        if isinstance(file, io.IOBase):
            return cls.load(file.read())
        raise TypeError(f"file must be a path or an open file, got {file!r}")

    @classmethod
    def load(cls, yaml_str: Union[str, bytes]) -> CfgNode:
        """Read a text. Raises :class:`ValueError` if it is no YAML, or its top is no node."""
        text = yaml_str.decode() if isinstance(yaml_str, bytes) else yaml_str
        return cls(read_yaml(text), copy=False)

    @classmethod
    def dump(
        cls,
        cfg: CfgNode,
        stream: Optional[IO[Any]] = None,
        encoding: Optional[str] = None,
        *,
        sort_keys: bool = True,
        allow_unicode: bool = True,
    ) -> Union[str, bytes, None]:
        """Write to an open file, or return a text, or bytes if there is an encoding.

        Raises :class:`ValueError` for what is no number, text, list, tuple or node. Other options of PyYAML are a
        :class:`TypeError`.
        """
        text = write_yaml(plain(cfg, sort_keys=sort_keys))
        if not allow_unicode and not text.isascii():
            raise ValueError("allow_unicode=False cannot be used with texts that are not ASCII")
        is_text = stream is not None and (isinstance(stream, io.TextIOBase) or hasattr(stream, "encoding"))
        written = text if encoding is None or is_text else text.encode(encoding)
        if stream is None:
            return written
        stream.write(written)
        return None

    def save(self, save_path: Union[str, os.PathLike[str]], encoding: str = "utf-8") -> None:
        """Write a file. If a value cannot be written, the file stays as it was."""
        text = write_yaml(plain(self, sort_keys=True))
        with open(save_path, "w", encoding=encoding) as file:
            file.write(text)

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


class HierarchicalCfgNode:
    """Reads and writes files that are based on others, which a key ``__BASE__`` at their top names.

    A base is looked up beside the file that names it, then in the current directory.
    """

    @classmethod
    def open(cls, file: Union[str, os.PathLike[str]], encoding: str = "utf-8") -> CfgNode:
        """Read a file and those that it is based on. Its own values win, and there is no key ``__BASE__``.

        Raises :class:`FileNotFoundError` for a base that is missing, and :class:`FileExistsError` for a file that is
        based on itself.
        """
        path = os.path.abspath(file)
        paths, nodes = [path], [CfgNode.open(path, encoding)]
        while _BASE in nodes[-1]:
            path = base_of(path, nodes[-1].pop(_BASE))
            if path in paths:
                raise FileExistsError(f"{path} is based on itself: {' -> '.join([*paths[paths.index(path) :], path])}")
            paths.append(path)
            nodes.append(CfgNode.open(path, encoding))
        cfg = nodes.pop()
        for node in reversed(nodes):
            cfg.merge(node)
        return cfg

    @classmethod
    def save(
        cls,
        cfg: CfgNode,
        save_path: Union[str, os.PathLike[str]],
        base_cfg_path: Union[str, os.PathLike[str], None] = None,
        base_path_relative: bool = True,
        encoding: str = "utf-8",
    ) -> None:
        """Write a file; with a base, only what differs from it."""
        if base_cfg_path is not None:
            base = cls.open(base_cfg_path, encoding)
            start = os.path.dirname(os.path.abspath(save_path))
            absolute = os.path.abspath(base_cfg_path)
            cfg = difference(cfg, base)
            cfg[_BASE] = os.path.relpath(absolute, start) if base_path_relative else absolute
        cfg.save(save_path, encoding)


def base_of(path: str, base: Any) -> str:
    """Return the path of the base that a file names."""
    if not isinstance(base, str):
        raise TypeError(f"{_BASE} in {path} must be a path, got {base!r}")
    for found in (os.path.join(os.path.dirname(path), base), base):
        if os.path.exists(found):
            return os.path.abspath(found)
    raise FileNotFoundError(f"{_BASE}: {base} in {path}")


def difference(cfg: CfgNode, base: CfgNode) -> CfgNode:
    """Return the values that a base does not have."""
    left = CfgNode()
    for key, value in cfg.items():
        own = base.get(key)
        if key not in base or value != own or type(value) is not type(own):
            if isinstance(value, CfgNode) and isinstance(own, CfgNode):
                left[key] = difference(value, own)
            else:
                left[key] = copying.deepcopy(value)
    return left


def plain(cfg: dict[str, Any], *, sort_keys: bool) -> dict[str, Any]:
    """Return what is written for a node."""
    keys = sorted(cfg) if sort_keys else list(cfg)
    return {key: plain_value(cfg[key], sort_keys=sort_keys) for key in keys}


def plain_value(value: Any, *, sort_keys: bool) -> Any:
    """Return what is written for a value of a node: a text is decoded when it is read."""
    if isinstance(value, dict):
        return plain(value, sort_keys=sort_keys)
    if has_tuple(value):
        text = repr(value)
        if decoded(text) == value:
            return text
    return value


def has_tuple(value: Any) -> bool:
    """Return whether a value is a tuple, or a list with one somewhere."""
    return isinstance(value, tuple) or (isinstance(value, list) and any(map(has_tuple, value)))


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
