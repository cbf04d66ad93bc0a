"""Run a suite in environments of given Pythons, JAXes and resolutions, and print what passed as a
table.

    python tools/matrix.py                                       the smoke suite, all that this
    machine can make python tools/matrix.py --python 3.13 --jax 0.9.2 newest --resolution newest
    python tools/matrix.py --python 3.11 --jax 0.8.0 --resolution lowest --suite tests/core
    tests/tree python tools/matrix.py --python 3.13 --jax newest --resolution newest --extra test
    --apart --suite tests/nn tests/live

An environment is a folder of packages under build/matrix that is put on the path of an interpreter,
so an interpreter needs no pip. Interpreters are looked for on the PATH and among pyenv's; for
others, as root, `--debian 3.14` takes those of Debian's unstable suite, in a chroot made with
debootstrap. `lowest` takes the oldest version that pyproject.toml allows and that has a wheel.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
PLACE = ROOT / "build" / "matrix"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
JAXES = ("0.8.0", "0.8.3", "0.9.2", "0.10.0", "newest")
DEBIAN = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nbmodule" / "debian"
"""The chroot. Outside of the project, which is mounted in it: a right that Landlock gives on the project would hold for what is around it."""
WITHIN = Path("/project")
"""Where the project lies inside the chroot."""


class Interpreter(NamedTuple):
    """A Python, and the folder that is its root where it lives in a chroot."""

    version: str
    program: str
    root: Path | None = None

    def run(self, arguments: list[str], packages: Path) -> int:
        """Run it with these packages and the project on its path; its exit code."""
        here = WITHIN if self.root else ROOT
        inside = here / packages.relative_to(ROOT)
        settings = os.environ | {
            "PYTHONPATH": f"{here}{os.pathsep}{inside}",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        settings["JUPYTER_PATH"] = str(
            inside / "share" / "jupyter"
        )  # the templates of pages, which are no part of a Python package
        command = [self.program, *arguments]
        if self.root:
            command = [
                "chroot",
                str(self.root),
                "/bin/sh",
                "-c",
                f'cd {here} && exec "$@"',
                "sh",
                *command,
            ]
            settings |= {"HOME": "/root", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        return subprocess.run(
            command, cwd=ROOT, env=settings, stdout=sys.stderr, check=False
        ).returncode


def find_interpreter(version: str) -> Interpreter | None:
    """The newest interpreter of a minor version on the PATH or among pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    fetched = sorted(pyenv.glob(f"{version}.*/bin/python"), reverse=True)
    for program in [*map(str, fetched), shutil.which(f"python{version}")]:
        if (
            program
            and not subprocess.run(
                [program, "-c", "import ctypes"], capture_output=True, check=False
            ).returncode
        ):
            bare = (
                PLACE / f"python{version}"
            )  # without the packages that the interpreter itself may have
            subprocess.run(
                [program, "-m", "venv", "--without-pip", "--clear", str(bare)], check=True
            )
            return Interpreter(version, str(bare / "bin" / "python"))
    return None


@contextmanager
def debian(versions: list[str]) -> Iterator[list[Interpreter]]:
    """Interpreters of Debian's unstable suite, with the project mounted beside them."""
    root = DEBIAN
    if not all((root / "usr" / "bin" / f"python{version}").exists() for version in versions):
        wanted = ",".join(f"python{version}" for version in versions)
        root.parent.mkdir(parents=True, exist_ok=True)
        make = ["debootstrap", "--variant=minbase", f"--include={wanted}", "sid", str(root)]
        subprocess.run(make, check=True, stdout=sys.stderr)
    shutil.copy(
        "/etc/hosts", root / "etc" / "hosts"
    )  # this machine's own name, by which two processes of JAX find each other
    mounts = [
        (ROOT, root / WITHIN.relative_to("/")),
        (Path("/proc"), root / "proc"),
        (Path("/dev"), root / "dev"),
    ]
    done: list[Path] = []
    try:
        for source, target in mounts:
            target.mkdir(exist_ok=True)
            subprocess.run(["mount", "--bind", str(source), str(target)], check=True)
            done.append(target)
        yield [Interpreter(version, f"/usr/bin/python{version}", root) for version in versions]
    finally:
        for target in reversed(done):
            # Lazily, for what was ended in there may still be on its way out.
            subprocess.run(["umount", "--lazy", str(target)], check=True)


def uv() -> str:
    """The program that resolves for an interpreter that is not its own; fetched once."""
    tool = PLACE / "tool"
    if not (tool / "bin" / "uv").exists():
        subprocess.run([sys.executable, "-m", "venv", str(tool)], check=True)
        subprocess.run(
            [str(tool / "bin" / "python"), "-m", "pip", "install", "--quiet", "uv"], check=True
        )
    return str(tool / "bin" / "uv")


def install(version: str, jax: str, resolution: str, extra: str) -> Path:
    """A folder with the packages of one environment; made anew each time, from uv's cache."""
    folder = PLACE / f"py{version}-jax{jax}-{resolution}-{extra}"
    shutil.rmtree(folder, ignore_errors=True)
    wanted = PLACE / "wanted.txt"
    wanted.write_text(
        f"nbmodule[{extra}] @ {ROOT.as_uri()}\n" + ("" if jax == "newest" else f"jax=={jax}\n")
    )
    command = [
        uv(),
        "pip",
        "install",
        "--quiet",
        "--target",
        str(folder),
        "--python-version",
        version,
    ]
    command += ["--only-binary", ":all:", "--no-binary", "nbmodule"]
    command += [
        "--resolution",
        "lowest-direct" if resolution == "lowest" else "highest",
        "-r",
        str(wanted),
    ]
    subprocess.run(command, check=True, env=os.environ | {"UV_LINK_MODE": "copy"})
    shutil.rmtree(folder / "nbmodule")  # the checkout itself is tested
    return folder


class Row(NamedTuple):
    """What one environment gave."""

    python: str
    jax: str
    resolution: str
    passed: int
    failed: int
    skipped: int
    seconds: float

    def __str__(self) -> str:
        cells = (*self[:3], *map(str, self[3:6]), f"{self.seconds:.0f} s")
        return "| " + " | ".join(cells) + " |"


HEAD = "| Python | JAX | resolution | passed | failed | skipped | time |\n| --- | --- | --- | --- | --- | --- | --- |"


def counted(report: Path) -> tuple[int, int, int]:
    """How many tests passed, failed and were skipped; a run that left no report, or collected
    nothing, failed once.
    """
    found = dict(ElementTree.parse(report).getroot()[0].attrib) if report.exists() else {}
    tests, skipped = int(found.get("tests", 0)), int(found.get("skipped", 0))
    failed = int(found.get("failures", 0)) + int(found.get("errors", 0)) if tests else 1
    return max(tests - failed - skipped, 0), failed, skipped


def measure(
    interpreter: Interpreter,
    jax: str,
    resolution: str,
    runs: list[list[str]],
    extra: str,
    flags: list[str],
) -> Row:
    """Make one environment and run each list of tests in it, in a process of its own."""
    packages = install(interpreter.version, jax, resolution, extra)
    (found,) = packages.glob("jax-*.dist-info")
    report = PLACE / f"{packages.name}.xml"
    inside = (WITHIN if interpreter.root else ROOT) / report.relative_to(ROOT)
    started, results = time.monotonic(), []
    for suite in runs:
        report.unlink(missing_ok=True)
        interpreter.run(
            [
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                f"--junitxml={inside}",
                *flags,
                *suite,
            ],
            packages,
        )
        results.append(counted(report))
        print(*suite, "passed, failed, skipped:", results[-1], file=sys.stderr, flush=True)
    passed, failed, skipped = map(sum, zip(*results))
    version = found.name.removeprefix("jax-").removesuffix(".dist-info")
    return Row(
        interpreter.version,
        version,
        resolution,
        passed,
        failed,
        skipped,
        time.monotonic() - started,
    )


def main(arguments: list[str]) -> int:
    """Print the table; 1 if a test failed somewhere."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--python",
        nargs="*",
        default=list(PYTHONS),
        help="minor versions; what is not here is left out",
    )
    parser.add_argument(
        "--debian",
        nargs="*",
        default=[],
        help="minor versions from Debian's unstable suite, as root",
    )
    parser.add_argument("--jax", nargs="+", default=list(JAXES), help="releases, or `newest`")
    parser.add_argument(
        "--resolution", nargs="+", default=["lowest", "newest"], choices=["lowest", "newest"]
    )
    parser.add_argument(
        "--extra",
        default="smoke",
        help="what is installed beside the package; `test` for the whole suite",
    )
    parser.add_argument("--workers", default="2", help="how many tests at a time")
    parser.add_argument(
        "--suite", nargs="+", help="files or folders of tests; the smoke suite if none is given"
    )
    parser.add_argument(
        "--apart",
        action="store_true",
        help="each file or folder of the suite in a process of its own",
    )
    options = parser.parse_args(arguments)

    made = subprocess.run(
        ["make", "-s", "smoke-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    suite = options.suite or made.stdout.split()
    runs = [[each] for each in suite] if options.apart else [suite]
    flags = ["-n", options.workers, "--dist", "loadfile", "--max-worker-restart=0"]
    flags += ["-m", "not long and not chromium and not node"]
    PLACE.mkdir(parents=True, exist_ok=True)
    found = {
        version: find_interpreter(version)
        for version in options.python
        if version not in options.debian
    }
    if missing := [version for version, interpreter in found.items() if interpreter is None]:
        print(
            f"not on this machine: Python {', '.join(missing)} (as root: --debian {' '.join(missing)})",
            file=sys.stderr,
        )
    rows: list[Row] = []
    with debian(options.debian) if options.debian else nullcontext([]) as fetched:
        interpreters = sorted(
            [*filter(None, found.values()), *fetched], key=lambda each: PYTHONS.index(each.version)
        )
        for interpreter in interpreters:
            for jax, resolution in itertools.product(options.jax, options.resolution):
                rows.append(measure(interpreter, jax, resolution, runs, options.extra, flags))
                print(rows[-1], file=sys.stderr, flush=True)
    print("\n".join([HEAD, *map(str, rows)]))
    return int(any(row.failed for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
