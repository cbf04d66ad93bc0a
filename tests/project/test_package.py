"""The wheel holds what runs, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

import nbmodule as nb
from nbmodule.views.frontend import bundle

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = str(tmp_path_factory.mktemp("wheel"))
    (built,) = WheelBuilder(str(ROOT)).build(directory=folder, versions=["standard"])
    return Path(built)


@pytest.fixture(scope="module")
def wheel_names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_holds_every_file_of_the_package(wheel_names):
    for path in (ROOT / "nbmodule").rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            assert str(path.relative_to(ROOT)) in wheel_names
    assert "nbmodule/py.typed" in wheel_names


def test_the_wheel_holds_only_the_package_and_what_describes_it(wheel_names):
    about = f"nbmodule-{nb.__version__}.dist-info"
    assert {name.split("/")[0] for name in wheel_names} == {"nbmodule", about}
    assert any(name.endswith("licenses/LICENSE") for name in wheel_names)


def test_the_version_is_the_same_everywhere():
    assert f"## {nb.__version__}" in (ROOT / "docs" / "changelog.md").read_text()
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert settings["project"]["dynamic"] == ["version"]
    file = ROOT / settings["tool"]["hatch"]["version"]["path"]
    assert f'"{nb.__version__}"' in file.read_text()


def test_the_front_end_of_the_wheel_is_minified_and_still_joins(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    here = shutil.which("esbuild", path=str(ROOT / "node_modules/.bin"))
    if not (here or shutil.which("esbuild")):
        pytest.skip("esbuild is not installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    plain = bundle.widget_module.__wrapped__()
    folder = tmp_path / "nbmodule" / "views" / "frontend"
    monkeypatch.setattr(bundle, "read_frontend", lambda name: (folder / name).read_text("utf-8"))
    minified = bundle.widget_module.__wrapped__()
    assert len(minified) < 0.85 * len(plain)  # both without comments
    script = tmp_path / "joined.mjs"
    script.write_text(minified + "\nif (typeof mount !== 'function') throw new Error('no mount');")
    subprocess.run(["node", str(script)], check=True)
