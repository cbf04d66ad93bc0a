"""Writes a picture with a palette as PNG bytes.

By hand, because a palette PNG is a header and one deflated block (RFC 2083): thirty lines here, against an import of
matplotlib (0.4 s) or a dependency on Pillow in every cell that shows an array; and the same pixels give the same bytes
under every version of every package.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import numpy as np


def png_of(pixels: np.ndarray, palette: Sequence[tuple[int, int, int]]) -> bytes:
    r"""Encode rows of palette indices as a PNG.

    Args:
        pixels: `uint8[height, width]`, indices into the palette.
        palette: Red, green and blue of up to 256 colors.

    Example:
        >>> png_of(np.zeros((2, 3), np.uint8), [(255, 255, 255)])[:8]
        b'\x89PNG\r\n\x1a\n'
    """
    height, width = pixels.shape
    lines = np.zeros((height, width + 1), np.uint8)  # each line begins with its filter, 0: none
    lines[:, 1:] = pixels
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    colors = bytes(part for color in palette for part in color)
    chunks = (
        _chunk(b"IHDR", header),
        _chunk(b"PLTE", colors),
        _chunk(b"IDAT", zlib.compress(lines.tobytes(), 9)),
        _chunk(b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
