from __future__ import annotations

import jax
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.__main__ import main
from nbmodule.errors import FileFormatError
from nbmodule.files import save
from nbmodule.files.listing import diff_files, show_text


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "w.h5"
    tree = {
        "linear": {"w": np.ones((64, 3), np.float32), "b": np.ones(64, np.float32)},
        "key": jax.random.key(0),
        "n": 3,
        "t": "a\x1b[2J",
        "level": {},
    }
    save(path, tree, buffers={"bn": {"mean": np.ones(2)}}, metadata={"epoch": 4})
    return path


def test_a_file_is_shown_as_a_tree_with_sizes(path):
    assert show_text(path).splitlines() == [
        f"{path}: 6 variables, 1.01 KiB; 1 buffer, 16 B; has checksums",
        "linear",
        "  w       float32[64, 3]  768 B",
        "  b       float32[64]     256 B",
        "key       key<fry>[]      8 B",
        "n         int             3",
        r"t         str             'a\x1b[2J'",
        "level     {}",
        "__buffers__",
        "  bn",
        "    mean  float64[2]      16 B",
        'metadata  {"epoch": 4}',
    ]


def test_all_checksums_are_tested_on_request(path):
    assert "all checksums are right" in show_text(path, check=True)
    data = bytearray(path.read_bytes())
    at = data.find(np.ones(64, np.float32).tobytes())
    data[at] ^= 1
    path.write_bytes(data)
    assert "has checksums" in show_text(path)
    with pytest.raises(FileFormatError, match="its bytes have changed"):
        show_text(path, check=True)


def test_two_files_are_compared_with_their_buffers(path, tmp_path):
    other = tmp_path / "other.h5"
    save(
        other,
        {"linear": {"w": np.ones((64, 3), np.float32)}},
        buffers={"bn": {"mean": np.zeros(2)}},
    )
    rows = {row.path: row.kind for row in diff_files(path, other).rows}
    assert rows["linear/w"] == "equal"
    assert rows["linear/b"] == "only in first"
    assert rows["__buffers__/bn/mean"] == "values"


def test_the_commands_print_and_say_by_their_exit_code_whether_files_differ(path, tmp_path, capsys):
    assert main(["show", str(path)]) == 0
    assert "linear" in capsys.readouterr().out
    assert main(["show", "--check", str(path)]) == 0
    assert "all checksums are right" in capsys.readouterr().out
    assert main(["diff", str(path), str(path)]) == 0
    assert "7 of 7 places are equal" in capsys.readouterr().out
    save(tmp_path / "other.h5", {"n": 4})
    assert main(["diff", str(path), str(tmp_path / "other.h5")]) == 1
    assert "~ n  int  3 -> 4" in capsys.readouterr().out
    page = tmp_path / "page.html"
    for words, code in ((["show", path], 0), (["diff", path, tmp_path / "other.h5"], 1)):
        assert main([*map(str, words), "--html", str(page)]) == code
        text = page.read_text()
        assert "<nbm-view" in text and "float32[64, 3]" in text


@pytest.mark.parametrize("words", [[], ["show"], ["diff", "a"], ["shw", "a"], ["show", "a", "b"]])
def test_a_command_with_wrong_arguments_prints_its_usage(words, capsys):
    assert main(words) == 2
    assert "usage: python -m nbmodule" in capsys.readouterr().err


def test_the_version_is_printed(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"nbmodule {nb.__version__}\n"


def test_a_file_that_cannot_be_loaded_is_an_error_of_the_command(tmp_path, capsys):
    (tmp_path / "w.h5").write_text("no weights")
    assert main(["show", str(tmp_path / "w.h5")]) == 2
    assert "it is not an HDF5" in capsys.readouterr().err
    assert main(["show", str(tmp_path / "none.h5")]) == 2
    assert "there is no such file" in capsys.readouterr().err
