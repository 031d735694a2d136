"""From plain values, as a YAML file gives them, to checked settings: the class is the schema."""

import difflib
import importlib
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Literal, TypeVar, Union

from pate.errors import SettingError

T = TypeVar("T")


def build(value: Mapping[str, Any], name: str = "", **given: Any) -> Any:
    """Make the object that `_target_` names from the other keys.

    Args:
        value: `_target_` and fields; nested mappings with a `_target_` are built too.
        name: where the value stands, for messages, e.g. `mechanism`.
        given: fields that the program knows (e.g. num_labels); those the class does not have are left out.
    """
    keys = dict(value)
    cls = _resolve(keys.pop("_target_", None), name)
    known = {field.name for field in fields(cls)}
    return make(cls, keys | {key: item for key, item in given.items() if key in known}, name)


def pick(cls: type[T], value: Mapping[str, Any]) -> T:
    """A script's settings from the whole configuration: the keys that its dataclass names."""
    names = {field.name for field in fields(cls)}  # type: ignore[arg-type]
    paper = value.get("reproduction")
    if paper and "reproduction" not in names:
        raise SettingError(
            "experiment", "one for this script (python reproduce.py runs the papers')", paper["_target_"]
        )
    return make(cls, {key: item for key, item in value.items() if key in names})


def make(cls: type[T], value: Mapping[str, Any], name: str = "") -> T:
    """An instance of a dataclass from plain values; unknown keys, missing keys and wrong types are refused."""
    hints = typing.get_type_hints(cls)
    known = {field.name: field for field in fields(cls) if field.init}  # type: ignore[arg-type]
    for key in value:
        if key not in known:
            raise SettingError(_join(name, str(key)), f"a setting of {cls.__name__}{_closest(key, known)}", value[key])
    for key, field in known.items():
        required = field.default is MISSING and field.default_factory is MISSING
        if required and value.get(key, "???") == "???":
            raise SettingError(_join(name, key), "given", None)
    return cls(**{key: check(hints[key], item, _join(name, key)) for key, item in value.items()})


def check(hint: Any, value: Any, name: str) -> Any:
    """The value if it fits the type, converted where nothing is lost (int to float, list to tuple)."""
    origin, options = typing.get_origin(hint), typing.get_args(hint)
    if origin is dict:  # kept as plain values, to be built when more is known
        return dict(_expect(isinstance(value, Mapping), value, name, "a mapping"))
    if isinstance(value, Mapping) and "_target_" in value:
        return build(value, name)
    if origin in (Union, types.UnionType):
        return _any_of(options, value, name)
    if origin is Literal:
        return _expect(value in options, value, name, f"one of {', '.join(map(str, options))}")
    if origin in (tuple, list):
        items = _expect(isinstance(value, (list, tuple)), value, name, "a list")
        return origin(check(options[0], item, f"{name}[{place}]") for place, item in enumerate(items))
    return _plain(hint, value, name)


def _plain(hint: Any, value: Any, name: str) -> Any:
    if hint in (Any, None) or isinstance(hint, str):
        return value
    if is_dataclass(hint) and isinstance(value, Mapping):
        return make(hint, value, name)  # type: ignore[arg-type]
    if hint is type(None):
        return _expect(value is None, value, name, "null")
    if hint is float:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return float(_expect(number, value, name, "a number"))
    if hint is int:
        return _expect(isinstance(value, int) and not isinstance(value, bool), value, name, "a whole number")
    if hint in (bool, str):
        return _expect(isinstance(value, hint), value, name, "true or false" if hint is bool else "text")
    if getattr(hint, "_is_protocol", False):
        return _expect(not isinstance(value, (Mapping, str, int, float, type(None))), value, name, "a component")
    return _expect(isinstance(value, hint), value, name, f"a {hint.__name__}")


def _any_of(options: tuple[Any, ...], value: Any, name: str) -> Any:
    if value is None and type(None) in options:
        return None
    failures = []
    for option in options:
        if option is type(None):
            continue
        try:
            return check(option, value, name)
        except SettingError as error:
            failures.append(error)
    if len(failures) == 1:
        raise failures[0]
    raise SettingError(name, " or ".join(dict.fromkeys(error.rule for error in failures)), value)


def _resolve(target: Any, name: str) -> type[Any]:
    """The dataclass behind a `_target_`; only this package's own can be named."""
    rule = "the name of a settings class in pate"
    if not isinstance(target, str) or not target.startswith("pate."):
        raise SettingError(_join(name, "_target_"), rule, target)
    module, _, attribute = target.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError):
        raise SettingError(_join(name, "_target_"), rule, target) from None
    if not (isinstance(found, type) and is_dataclass(found)):
        raise SettingError(_join(name, "_target_"), rule, target)
    return found


def _expect(ok: bool, value: Any, name: str, rule: str) -> Any:
    if not ok:
        raise SettingError(name, rule, value)
    return value


def _closest(key: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(str(key), known, n=1)
    return f" (did you mean {close[0]}?)" if close else f" ({', '.join(known)})"


def _join(prefix: str, key: str) -> str:
    return f"{prefix}.{key}" if prefix else key
