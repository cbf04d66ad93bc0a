"""Install the extra `wild` of pyproject.toml into the running environment, PyTorch left as it is.

The packages themselves come without dependencies, since these would pull another PyTorch; what they
need beside it is installed after that.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]


def install(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *arguments], check=True)


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = project["optional-dependencies"]["wild"]
    for name in names:  # one by one: a package without a wheel is skipped by the table
        try:
            install("--no-deps", name)
        except subprocess.CalledProcessError:
            print(f"{name} cannot be installed here")
    needed: dict[str, str] = {}
    for name in names:
        try:
            found = requires(Requirement(name).name) or []
        except PackageNotFoundError:
            continue
        for text in found:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                if not requirement.name.startswith(("torch", "nvidia")):
                    needed[requirement.name] = f"{requirement.name}{requirement.specifier}"
    with_torch = {"accelerate", "timm", "torchvision"}
    install(*(text for name, text in needed.items() if name not in with_torch))


if __name__ == "__main__":
    main()
