"""The private side of a ledger: a salt that hides the votes, notes that only their owner can read."""

import pytest

from pate.errors import PateError
from pate.witness import Witness


def test_the_salt_is_private_drawn_once_and_hides_what_it_is_put_before(tmp_path):
    first, second = (Witness(tmp_path / name / "release" / "ledger.sqlite") for name in ("a", "b"))
    assert first.blind("votes") == first.blind("votes") != second.blind("votes")
    assert first.blind("votes") != first.blind("other votes")
    salt = first.folder / "salt"
    assert len(salt.read_bytes()) == 64 and salt.stat().st_mode & 0o777 == 0o600
    assert first.folder.stat().st_mode & 0o777 == 0o700 == first.folder.parent.stat().st_mode & 0o777
    salt.write_bytes(b"")
    with pytest.raises(PateError, match="salt was changed"):
        first.blind("votes")


def test_ledgers_of_one_run_have_notes_of_their_own(tmp_path):
    inside = [Witness(tmp_path / "release" / name / "ledger.sqlite") for name in (".", "study")]
    assert len({witness.path for witness in inside}) == 2 and len({witness.blind("votes") for witness in inside}) == 1
    assert all(witness.folder == tmp_path / "private" / "ledger" for witness in inside)
    alone = Witness(tmp_path / "elsewhere" / "ledger.sqlite")
    assert alone.folder == tmp_path / "elsewhere" / "private" / "ledger"


def test_who_is_alone_knows_it(tmp_path):
    witness = Witness(tmp_path / "release" / "ledger.sqlite")
    with witness.presence() as first, witness.presence() as second:
        assert first and not second
    with witness.presence() as again:
        assert again
