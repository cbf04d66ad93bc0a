"""A file in memory with room for arrays that are never in it: what HDF5 writes a skeleton into."""

from __future__ import annotations

import bisect
from typing import Any


class SparseFile:
    """Keeps what is written, piece by piece; what was never written reads as zeros and takes no memory.

    Pieces stay as HDF5 wrote them, and a later piece may cover a part of an earlier one. They are kept in groups that do not
    touch each other, so that a look back stays cheap with very many of them.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._spans: dict[int, bytearray] = {}
        self._position = self.size = 0

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to an offset, as in any file."""
        self._position = offset + (0, self._position, self.size)[whence]
        return self._position

    def tell(self) -> int:
        """Say where the next byte goes."""
        return self._position

    def write(self, data: Any) -> int:
        """Keep bytes at the current place."""
        begin, piece = self._position, memoryview(data).cast("B")
        end = self._position = begin + len(piece)
        self.size = max(self.size, end)
        if not len(piece):
            return 0
        at = bisect.bisect_right(self._starts, begin) - 1
        if at >= 0 and end <= self._starts[at] + len(self._spans[self._starts[at]]):
            inside = begin - self._starts[at]
            self._spans[self._starts[at]][inside : inside + len(piece)] = piece
        else:
            self._insert(begin, piece)
        return len(piece)

    def _insert(self, begin: int, piece: memoryview) -> None:
        """Add a span and join it with those that it covers in part."""
        end = begin + len(piece)
        first = bisect.bisect_right(self._starts, begin) - 1
        if first < 0 or self._starts[first] + len(self._spans[self._starts[first]]) <= begin:
            first += 1
        last = bisect.bisect_left(self._starts, end)
        joined = self._starts[first:last]
        start = min([begin, *joined[:1]])
        stop = max([end, *(place + len(self._spans[place]) for place in joined[-1:])])
        span = bytearray(stop - start)
        for place in joined:
            old = self._spans.pop(place)
            span[place - start : place - start + len(old)] = old
        span[begin - start : end - start] = piece
        self._starts[first:last] = [start]
        self._spans[start] = span

    def read(self, size: int = -1) -> bytes:
        """Read from the current place."""
        buffer = bytearray(max(0, self.size - self._position if size < 0 else size))
        self.readinto(buffer)
        return bytes(buffer)

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer from the current place; HDF5 looks again at what it has pushed out of its cache."""
        view = memoryview(buffer).cast("B")
        view[:] = bytes(len(view))
        begin, end = self._position, self._position + len(view)
        first = max(0, bisect.bisect_right(self._starts, begin) - 1)
        for start in self._starts[first : bisect.bisect_left(self._starts, end)]:
            span = self._spans[start]
            low, high = max(begin, start), min(end, start + len(span))
            if low < high:
                view[low - begin : high - begin] = span[low - start : high - start]
        self._position = end
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        """Set the size of the file, as HDF5 does at the end."""
        self.size = self._position if size is None else size
        return self.size

    def flush(self) -> None:
        """Do nothing: there is no disk."""

    def pieces(self) -> list[tuple[int, bytes]]:
        """Give all that was written as (offset, bytes), in ascending order and without overlaps.

        Example:
            >>> from nbmodule.files.sparse_file import SparseFile
            >>> file = SparseFile()
            >>> file.seek(10**12), file.write(b"far"), file.seek(0), file.write(b"near")
            (1000000000000, 3, 0, 4)
            >>> file.pieces()
            [(0, b'near'), (1000000000000, b'far')]
        """
        return [(start, bytes(self._spans[start])) for start in self._starts]
