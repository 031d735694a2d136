"""What every script shares: a user's mistake is one sentence and an exit code, never a traceback."""

import os
import re
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from pate.errors import PateError

BAD_INPUT, INTERRUPTED, TERMINATED = 2, 130, 143


class Terminated(BaseException):
    """SIGTERM arrived; unwinds so that workers are ended and temporary files removed."""


def run_script(main: Callable[[], object]) -> NoReturn:
    """Run a script's main function and leave with its exit code: 0, 2 bad input, 3 budget, 130/143 signals."""
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # configuration errors arrive here instead of being printed
    signal.signal(signal.SIGTERM, _terminate)
    try:
        main()
    except PateError as error:
        _leave(str(error), error.exit_code)
    except KeyboardInterrupt:
        _leave("interrupted; the same command goes on where it stopped", INTERRUPTED)
    except Terminated:
        _leave("terminated; the same command goes on where it stopped", TERMINATED)
    except Exception as error:
        if not type(error).__module__.startswith(("hydra", "omegaconf")):
            raise
        _leave(configuration_sentence(str(error)), BAD_INPUT)
    sys.exit(0)


def configuration_sentence(message: str) -> str:
    """A configuration library's several lines as one sentence.

    >>> configuration_sentence("Could not override 'quries'.\\nTo append to your config use +quries=5")
    'quries must be a setting of this script; --help lists them'
    """
    unknown = re.match(r"Could not (?:override|append to config|delete from config)[^']*'([^']+)'", message)
    if unknown and "No match in the defaults list" not in message:
        return f"{unknown[1]} must be a setting of this script; --help lists them"
    lines = [
        line.strip()
        for line in message.splitlines()
        if line.strip() and not line.strip().startswith(("full_key", "object_type"))
    ]
    lines = [line for line in lines if "config search path" not in line.lower() and not line.startswith("provider=")]
    text = re.sub(r"[.:]?\s*;", ";", "; ".join(lines))
    return text.replace(":;", ":")


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated


def _leave(sentence: str, code: int) -> NoReturn:
    print(sentence, file=sys.stderr)
    sys.exit(code)
