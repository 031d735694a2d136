"""What every script shares: a user's mistake is one sentence and an exit code, never a traceback."""

import functools
import itertools
import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NoReturn, ParamSpec

from tqdm import tqdm

from pate.errors import PateError

P = ParamSpec("P")

BAD_INPUT, INTERRUPTED, TERMINATED = 2, 130, 143
WORDS = {"quick=true": "size=quick", "quick=false": "size=full"}  # a group's options cannot be called true and false


class Terminated(BaseException):
    """SIGTERM arrived; unwinds so that workers are ended and temporary files removed."""


def command(main: Callable[P, object]) -> Callable[P, None]:
    """Let a main function end in a sentence and an exit code: 2 bad input, 3 budget, 130 and 143 signals."""

    @functools.wraps(main)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        signal.signal(signal.SIGTERM, _terminate)
        tqdm.set_lock(threading.RLock())  # the default lock is shared with processes that may be killed
        try:
            main(*args, **kwargs)
        except PateError as error:
            _leave(str(error), error.exit_code)
        except KeyboardInterrupt:
            _leave("interrupted; the same command goes on where it stopped", INTERRUPTED)
        except BrokenPipeError:  # whoever read our output has had enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except Terminated:
            _leave("terminated; the same command goes on where it stopped", TERMINATED)

    return guarded


def run_script(main: Callable[[], object]) -> None:
    """Run a configured script; mistakes in its configuration end like all others."""
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # such errors arrive here instead of being printed
    sys.argv[1:] = [translate(word, Path(sys.argv[0]).parent / "conf") for word in sys.argv[1:]]
    added = [word for word in sys.argv[1:] if word.startswith("+")]
    if added:
        _leave(f"settings must be given as name=value, not added, got {added[0]!r}; --help lists them", BAD_INPUT)
    try:
        command(main)()
    except Exception as error:
        if not type(error).__module__.startswith(("hydra", "omegaconf")):
            raise
        _leave(configuration_sentence(str(error)), BAD_INPUT)


def translate(word: str, conf: Path) -> str:
    """What a person types as the configuration has it: quick=true is a size, model=NAME may be any network's name.

    >>> translate("quick=true", Path("conf")), translate("model=vgg11", Path("conf")), translate("seed=1", Path("conf"))
    ('size=quick', 'model.name=vgg11', 'seed=1')
    """
    network = re.fullmatch(r"model=(\w+)", word)
    if network and not (conf / "model" / f"{network[1]}.yaml").exists():
        return f"model.name={network[1]}"
    return WORDS.get(word, word)


def configuration_sentence(message: str) -> str:
    """A configuration library's several lines as one sentence.

    >>> configuration_sentence("Could not override 'quries'.\\nTo append to your config use +quries=5")
    'quries must be a setting of this script; --help lists them'
    >>> configuration_sentence("In 'base': Could not find 'data/x'\\n\\nAvailable options in 'data':\\n\\ta\\n\\tb")
    "data must be one of a, b, got 'x'"
    """
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    unknown = re.match(r"Could not (?:override|append to config|delete from config)[^']*'([^']+)'", message)
    if unknown and "No match in the defaults list" not in message:
        return f"{unknown[1]} must be a setting of this script; --help lists them"
    option = re.search(r"Could not find '([^']+)/([^'/]+)'", message)
    if option and "Available options" in message:
        start = next(place for place, line in enumerate(lines) if line.startswith("Available options"))
        options = itertools.takewhile(lambda line: not line.startswith("Config search path"), lines[start + 1 :])
        return f"{option[1]} must be one of {', '.join(options)}, got {option[2]!r}"
    kept = [line for line in lines if not line.startswith(("full_key", "object_type", "provider="))]
    return "; ".join(line.rstrip(".:") for line in kept)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated


def _leave(sentence: str, code: int) -> NoReturn:
    print(sentence, file=sys.stderr)
    sys.exit(code)
