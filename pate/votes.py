"""The teachers' votes on disk: one small file per teacher, bit-packed, whole or absent, private."""

import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pate.errors import DataError, MissingInput, require
from pate.runs import private_folder, write_bytes

Array = np.ndarray
MAGIC, VERSION = b"PATEVOTE", 1
HEADER = struct.Struct("<8sIIII16s")  # magic, version, teacher, queries, labels, digest of the token
CHECK = 32  # bytes of checksum over everything before it


@dataclass(frozen=True)
class VoteStore:
    """The (T, N, K) votes of one run, a file per teacher; any number of processes may save at the same time.

    Attributes:
        folder: made with mode 0700; files have mode 0600.
        teachers, queries, labels: T, N and K.
    """

    folder: Path
    teachers: int
    queries: int
    labels: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", Path(self.folder))
        for name in ("teachers", "queries", "labels"):
            require(getattr(self, name) >= 1, name, ">= 1", getattr(self, name))

    def path(self, teacher: int) -> Path:
        """Where a teacher's votes are."""
        return self.folder / f"teacher-{teacher:05d}.votes"

    def save(self, teacher: int, votes: Array, token: str) -> None:
        """Write one teacher's (N, K) votes.

        Args:
            token: what the votes belong to (queries and settings, as one word); files of different tokens do
                not mix.
        """
        shape = (self.queries, self.labels)
        require(0 <= teacher < self.teachers, "teacher", f"from 0 to {self.teachers - 1}", teacher)
        require(votes.shape == shape and votes.dtype == bool, "votes", f"bool of shape {shape}", _kind(votes))
        body = HEADER.pack(MAGIC, VERSION, teacher, *shape, _short(token)) + np.packbits(votes).tobytes()
        private_folder(self.folder)
        write_bytes(self.path(teacher), body + _check(body), mode=0o600)

    def done(self, token: str | None = None) -> set[int]:
        """The teachers whose votes are here and whole; torn files count as missing.

        Raises:
            DataError: a whole file is of another run (shape, teacher or token), naming it.
        """
        return {teacher for teacher in range(self.teachers) if self._body(teacher, token) is not None}

    def missing(self, token: str | None = None) -> list[int]:
        """The teachers still to be trained, in order."""
        return sorted(set(range(self.teachers)) - self.done(token))

    def load(self, token: str | None = None) -> Array:
        """All votes, (T, N, K) bool.

        Raises:
            MissingInput: some teachers have not voted yet.
            DataError: a file is torn, or of another run, or files of two runs are mixed; it is named.
        """
        bodies = list(self._bodies(token))
        tokens = {body[HEADER.size - 16 : HEADER.size] for body in bodies}
        if len(tokens) > 1:
            raise DataError(f"{self.folder} mixes the votes of {len(tokens)} runs: train the teachers anew")
        packed = np.frombuffer(b"".join(body[HEADER.size :] for body in bodies), np.uint8)
        bits = np.unpackbits(packed.reshape(self.teachers, -1), axis=1, count=self.queries * self.labels)
        return bits.view(bool).reshape(self.teachers, self.queries, self.labels)

    def manifest(self) -> dict[str, str]:
        """Each file's name and the digest of its content."""
        return {self.path(t).name: _check(body).hex() for t, body in enumerate(self._bodies(None))}

    def digest(self) -> str:
        """One hash over all votes: two stores agree on it if and only if they hold the same files."""
        lines = "".join(f"{name} {check}\n" for name, check in self.manifest().items())
        return hashlib.blake2b(lines.encode(), digest_size=32).hexdigest()

    def sweep(self) -> None:
        """Remove what writers that were killed left behind; call it when nobody is writing."""
        for path in self.folder.glob(".teacher-*.tmp"):
            path.unlink(missing_ok=True)

    def _bodies(self, token: str | None) -> Iterable[bytes]:
        """Every teacher's file without its checksum, or a sentence about the first that is not in order."""
        absent = [teacher for teacher in range(self.teachers) if not self.path(teacher).exists()]
        if absent:
            raise MissingInput(
                f"votes of {len(absent)} of {self.teachers} teachers are missing in {self.folder} "
                f"(first: {absent[0]}): python train_teachers.py makes them"
            )
        for teacher in range(self.teachers):
            body = self._body(teacher, token)
            if body is None:
                raise DataError(f"{self.path(teacher)} is torn or was changed: delete it and train the teachers again")
            yield body

    def _body(self, teacher: int, token: str | None) -> bytes | None:
        """A teacher's file without its checksum; None if it is absent or torn; `DataError` if it is foreign."""
        try:
            data = self.path(teacher).read_bytes()
        except FileNotFoundError:
            return None
        body = data[:-CHECK]
        if len(body) < HEADER.size or _check(body) != data[-CHECK:]:
            return None
        found = HEADER.unpack_from(body)
        size = (self.queries * self.labels + 7) // 8
        wanted = (MAGIC, VERSION, teacher, self.queries, self.labels, _short(token) if token is not None else found[5])
        if found != wanted or len(body) != HEADER.size + size:
            raise DataError(f"{self.path(teacher)} belongs to other queries, settings or another teacher")
        return body


def tally(votes: Array) -> Array:
    """(T, N, K) votes to (N, K) counts of teachers in favour; plain sums, no ballot bounded."""
    return votes.sum(axis=0, dtype=np.int64)


def _short(token: str) -> bytes:
    return hashlib.blake2b(token.encode(), digest_size=16).digest()


def _check(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=CHECK).digest()


def _kind(votes: Array) -> str:
    return f"{votes.dtype} of shape {votes.shape}"
