"""Make the files of `fixtures/`: `python tests/files/make_fixture.py`.

Files of a format that has been released never change.
"""

from __future__ import annotations

from pathlib import Path

import jax
import ml_dtypes
import numpy as np

from nbmodule.files import save

FOLDER = Path(__file__).with_name("fixtures")


def tree_of_format_1() -> dict:
    """What the files of format 1 hold, made by formulas that need no file."""
    small = {
        name: np.arange(6).reshape(2, 3).astype(getattr(ml_dtypes, name))
        for name in ("bfloat16", "float8_e5m2", "float8_e4m3fn", "uint4")
    }
    plain = {
        name: np.arange(6).reshape(3, 2).astype(name)
        for name in ("bool", "int8", "uint64", "float16", "float64", "complex64")
    }
    return {
        "linear0": {
            "w": np.arange(12, dtype=np.float32).reshape(4, 3) / 7,
            "b": np.zeros(4, np.float32),
        },
        "dtypes": small | plain | {"int4": np.arange(-8, 8).astype(ml_dtypes.int4)},
        "others": {
            "key": jax.random.key(7),
            "count": 5,
            "rate": 0.5,
            "on": True,
            "name": "größe",
            "none": None,
            "level": {},
        },
        "a/b": {".": {"": np.array(1.5, np.float32)}, "100%": np.zeros((0, 3), np.int32)},
        "large": np.arange(5000, dtype=np.int16).reshape(50, 100),
    }


def main() -> None:
    """Write one file of each kind."""
    for name, options in {
        "plain": {},
        "packed": {"packed": True},
        "gzip": {"compression": "gzip"},
    }.items():
        save(
            FOLDER / f"format_1_{name}.h5",
            tree_of_format_1(),
            buffers={"bn": {"mean": np.arange(4.0)}},
            metadata={"epoch": 3},
            **options,
        )


if __name__ == "__main__":
    main()
