"""What can go wrong, as types. Every message says name, rule and value; every type knows its exit code."""


class PateError(Exception):
    """A mistake that a person can mend; shown as one sentence, never as a traceback."""

    exit_code = 2


class SettingError(PateError, ValueError):
    """A setting or an argument breaks its rule.

    >>> raise SettingError("sigma", "> 0", -1)
    Traceback (most recent call last):
    ...
    pate.errors.SettingError: sigma must be > 0, got -1
    """

    def __init__(self, name: str, rule: str, value: object) -> None:
        super().__init__(f"{name} must be {rule}, got {value!r}")
        self.name, self.rule, self.value = name, rule, value

    def __reduce__(self) -> tuple[type["SettingError"], tuple[str, str, object]]:
        return type(self), (self.name, self.rule, self.value)


class MissingInput(PateError):
    """A stage's input is not there; the message names the command that makes it."""


class RunChanged(PateError):
    """A run folder holds work done with other settings; the message names them."""


class DataError(PateError):
    """A data set's files are missing, torn or inconsistent; the message names the file."""


class BudgetExceeded(PateError):
    """A request would pass the privacy budget; nothing was drawn."""

    exit_code = 3


def require(ok: bool, name: str, rule: str, value: object) -> None:
    """Raise `SettingError` unless ok.

    >>> require(3 > 2, "k", "< 4", 3)
    """
    if not ok:
        raise SettingError(name, rule, value)
