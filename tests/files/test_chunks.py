from __future__ import annotations

import zlib
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbmodule.errors import FileFormatError
from nbmodule.files.chunks import chunk_shape, chunk_spans, compress, inflate, is_run

large_shapes = (
    st.lists(st.sampled_from([1, 2, 3, 100, 1025, 3000]), min_size=1, max_size=4)
    .map(tuple)
    .filter(lambda shape: prod(shape) < 1 << 27)
)


@given(large_shapes, st.sampled_from([1, 2, 4, 8, 16]))
def test_chunks_have_at_most_a_megabyte_and_cover_all_elements_once(shape, width):
    chunk = chunk_shape(shape, width)
    assert prod(chunk) * width <= 1 << 20
    assert is_run(shape, chunk)
    spans = list(chunk_spans(shape, chunk))
    assert (
        len({position for position, _, _ in spans})
        == len(spans)
        == prod(-(-s // c) for s, c in zip(shape, chunk, strict=True))
    )
    ends = [0]
    for position, begin, end in spans:
        assert begin == ends[-1] == np.ravel_multi_index(position, shape)
        assert 0 < end - begin <= prod(chunk)
        ends.append(end)
    assert ends[-1] == prod(shape)


@pytest.mark.parametrize(
    ("shape", "chunk"), [((4, 4), (2, 2)), ((4, 4), (8, 4)), ((3, 3), (1, 9)), ((0, 3), (1, 3))]
)
def test_chunks_that_are_no_run_of_bytes_are_told_apart(shape, chunk):
    assert not is_run(shape, chunk)


@given(st.integers(1, 50), st.sampled_from([1, 2, 8]), st.integers(0, 20), st.integers(0, 9))
def test_inflating_undoes_compressing(count, width, padding, level):
    data = np.random.default_rng(count).integers(0, 9, count * width).astype(np.uint8)
    size = (count + padding) * width
    found = inflate(compress(data, size, width, level), size, width, "x")
    assert found[: data.size].tobytes() == data.tobytes()
    assert not found[data.size :].any()


def test_a_chunk_that_unpacks_to_another_size_is_refused_without_unpacking_it():
    with pytest.raises(FileFormatError, match="unpacks to more than 100 bytes, expected 100"):
        inflate(zlib.compress(bytes(1 << 26)), 100, 4, '"/x"')
    with pytest.raises(FileFormatError, match=r'"/x": a chunk unpacks to 50 bytes, expected 100'):
        inflate(zlib.compress(bytes(50)), 100, 4, '"/x"')
    with pytest.raises(FileFormatError, match="a chunk cannot be unpacked"):
        inflate(b"\0\1\2", 100, 4, '"/x"')
