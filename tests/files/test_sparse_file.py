from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from nbmodule.files.sparse_file import SparseFile

writes = st.lists(st.tuples(st.integers(0, 60), st.binary(max_size=20)), max_size=25)


@given(writes, st.integers(0, 80), st.integers(0, 40))
def test_it_holds_what_a_plain_file_would(writes, at, length):
    sparse, plain = SparseFile(), bytearray(200)
    for offset, data in writes:
        sparse.seek(offset)
        assert sparse.write(data) == len(data)
        assert sparse.tell() == offset + len(data)
        plain[offset : offset + len(data)] = data
    sparse.seek(at)
    assert sparse.read(length) == plain[at : at + length]
    pieces = sparse.pieces()
    rebuilt = bytearray(200)
    for offset, piece in pieces:
        rebuilt[offset : offset + len(piece)] = piece
    assert rebuilt == plain
    assert all(a + len(x) <= b for (a, x), (b, _) in itertools.pairwise(pieces))


def test_far_places_take_no_memory():
    file = SparseFile()
    file.seek(1 << 60)
    file.write(b"far")
    assert file.size == (1 << 60) + 3
    assert sum(len(piece) for _, piece in file.pieces()) == 3


def test_seek_counts_from_the_start_the_place_and_the_end():
    file = SparseFile()
    file.write(b"abcdef")
    assert file.seek(2) == 2
    assert file.seek(1, 1) == 3
    assert file.seek(-1, 2) == 5
    assert file.read() == b"f"
    assert file.truncate(3) == file.size == 3
