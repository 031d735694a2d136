"""What the private room remembers of a ledger: how far it had come, and the salt under which it names the votes.

A ledger lies in the release folder, where others may hold and change it. Its witness lies in the private folder: after
each commit it notes the number of rows and the last row's hash, so that a ledger that was cut short, replaced by an
older copy or written anew is noticed. The note may lag behind by the commit that a crash interrupted, never lead.

The salt is there because a plain hash of the votes would betray them: who knows all records but one could hash every
guess. With 64 random bytes in front, the hash is spread evenly whatever the votes are, and still binds to them.
"""

import fcntl
import hashlib
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pate.errors import DataError
from pate.runs import private_folder, sync_folder

LINE = re.compile(rb"^(\d+) ([0-9a-f]{64})$")
SALT_BYTES = 64
Seen = tuple[int, str] | None  # number of rows, hash of the last of them


def private_room(ledger: Path) -> Path:
    """The private folder of the run that a ledger belongs to; beside the ledger if it is in no release folder.

    >>> private_room(Path("/runs/mine/release/study/ledger.sqlite")).as_posix()
    '/runs/mine/private'
    """
    folders = ledger.absolute().parents
    release = next((folder for folder in folders if folder.name == "release"), None)
    return (folders[0] if release is None else release.parent) / "private"


class Witness:
    """The private side of one ledger."""

    def __init__(self, ledger: Path) -> None:
        room, ledger = private_room(ledger), ledger.absolute()
        inside = ledger.is_relative_to(room.parent / "release")
        parts = ledger.relative_to(room.parent / "release").parts if inside else (ledger.name,)
        self.folder = room / "ledger"
        self.path = self.folder / ("-".join(parts) + ".seen")

    @contextmanager
    def lock(self, name: str = "write") -> Iterator[None]:
        """One at a time, also among processes; the lock of a process that was killed is free at once."""
        handle = self._create(self.path.with_suffix(f".{name}.lock"))
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    @contextmanager
    def presence(self) -> Iterator[bool]:
        """Be known to be at work; yields whether nobody else is."""
        handle = self._create(self.path.with_suffix(".presence.lock"))
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                alone = True
            except BlockingIOError:
                alone = False
            fcntl.flock(handle, fcntl.LOCK_SH)
            yield alone
        finally:
            os.close(handle)

    def seen(self) -> Seen:
        """The last whole note."""
        try:
            with self.path.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
                lines = file.read().split(b"\n")
        except FileNotFoundError:
            return None
        found = next((match for match in map(LINE.match, reversed(lines)) if match), None)
        return (int(found[1]), found[2].decode()) if found else None

    def note(self, rows: int, last: str) -> None:
        """Append what was committed; called under the lock. Not synced: the ledger is, and a note may lag."""
        handle = self._create(self.path)
        try:
            os.write(handle, f"\n{rows} {last}\n".encode())
        finally:
            os.close(handle)

    def blind(self, digest: str) -> str:
        """The hash that stands for private content in a ledger: equal for equal content of this run, else random."""
        return hashlib.sha256(self._salt() + digest.encode()).hexdigest()

    def _salt(self) -> bytes:
        """This run's salt; drawn once, by whoever comes first."""
        path = self.folder / "salt"
        if not path.exists():
            own = path.with_name(f".salt.{secrets.token_hex(8)}")
            with os.fdopen(self._create(own), "ab") as file:
                file.write(secrets.token_bytes(SALT_BYTES))
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):  # another process was first
                os.link(own, path)
            own.unlink()
            sync_folder(self.folder)
        salt = path.read_bytes()
        if len(salt) != SALT_BYTES:
            raise DataError(f"{path} was changed: it must hold {SALT_BYTES} random bytes, got {len(salt)}")
        return salt

    def _create(self, path: Path) -> int:
        """A handle that appends to a file that only its owner can read."""
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        try:
            return os.open(path, flags, 0o600)
        except FileNotFoundError:
            private_folder(self.folder.parent)
            private_folder(self.folder)
            return os.open(path, flags, 0o600)
