"""`nb.doctor()` and `python -m nbmodule doctor`: report what is installed, which displays and live
controls work, and how to fix what does not.

Nothing is changed and nothing is sent.
"""

from __future__ import annotations

import itertools
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distributions, requires, version
from typing import Any, NamedTuple

from nbmodule.base.notebook import running_kernel
from nbmodule.live.controls.pump import CommPump, find_route, is_marimo
from nbmodule.views.display.show import chosen_form
from nbmodule.views.renderers.text_layout import terminal_width

_NOTEBOOKS = ("ipykernel", "jupyterlab", "notebook", "marimo")
_PLUGIN = re.compile(r"jax-cuda\d+-(?:plugin|pjrt)")
_LESSONS = "jupyterlab ipykernel jupytext nbclient nbconvert nbformat scikit-learn"
# For each extra of pyproject.toml that a user may want: its purpose and its packages.
_EXTRAS = {
    "notebooks": ("JupyterLab and the notebooks of this project", tuple(_LESSONS.split())),
    "checkpoint": ("checkpoints of sharded models", ("orbax-checkpoint",)),
    "interop": ("models of other libraries, in and out", ("flax", "equinox", "dm-haiku", "keras")),
    "parquet": ("runs as Parquet files", ("pandas", "pyarrow")),
    "live": ("TensorBoard logs of nb.Live", ("tensorboardX",)),
}


class Checked(NamedTuple):
    """The result of one check.

    Attributes:
        section: Group of checks.
        name: Subject of the check.
        result: What is there.
        fix: What to do; empty where all is well.
        is_broken: Whether something that should work does not; otherwise `fix` is advice.
    """

    section: str
    name: str
    result: str
    fix: str = ""
    is_broken: bool = False


Checks = Iterator[tuple[Any, ...]]
"""Fields of `Checked` without the section."""


class Report(tuple[Checked, ...]):
    """All results, section by section."""

    __slots__ = ()

    @property
    def is_well(self) -> bool:
        """True if nothing is broken."""
        return not any(check.is_broken for check in self)

    def __repr__(self) -> str:
        lines: list[str] = []
        width = max(len(check.name) for check in self)
        for section, checks in itertools.groupby(self, lambda check: check.section):
            lines.append(section)
            for check in checks:
                mark = "·" if check.fix else "✓"
                mark = "✗" if check.is_broken else mark
                lines.append(f"  {mark} {check.name.ljust(width)}  {check.result}")
                lines += [f"    {' ' * width}  {check.fix}"] if check.fix else []
        broken = sum(check.is_broken for check in self)
        lines.append(f"{broken} to fix" if broken else "all is well")
        return "\n".join(lines)


def doctor() -> Report:
    """Check versions, device, kernel, displays, and how a running loop is stopped.

    Example:
        >>> report = nb.doctor()
        >>> report.is_well
        True
        >>> sorted({check.section for check in report})
        ['devices', 'displays', 'extras', 'running cells', 'versions']
    """
    results = []
    for checks in (_versions, _devices, _displays, _running_cells, _extras):
        section = checks.__name__.strip("_").replace("_", " ")
        results += [Checked(section, *entry) for entry in _safely(checks)]
    return Report(results)


def _safely(checks: Callable[[], Checks]) -> Checks:
    """Yield the results of a section; a failure is a result too."""
    try:
        yield from checks()
    except Exception as error:  # noqa: BLE001 - the reader wants to know of any
        yield "check failed", f"{type(error).__name__}: {error}", "fix this first", True


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _versions() -> Checks:
    system = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    yield "python", system
    yield "nbmodule", _installed("nbmodule") or "not installed, read from a folder"
    jax, jaxlib = _installed("jax") or "", _installed("jaxlib")
    fixes = [(each, f'`pip install "{each}"`') for each in _requirements("nbmodule")]
    fixes += [
        (each, f'jax {jax} wants another: `pip install "jax=={jax}" "{each}"`')
        for each in _requirements("jax")
        if each.name == "jaxlib"
    ]
    for requirement, fix in fixes:
        release = _installed(requirement.name)
        is_right = release and requirement.specifier.contains(release, prereleases=True)
        yield requirement.name, release or "missing", "" if is_right else fix, not is_right
    yield from _jax_behavior()
    names = {package.name: package.version for package in distributions()}
    for name, release in sorted(names.items()):
        if _PLUGIN.fullmatch(name.replace("_", "-")):
            fix = f'JAX uses a plugin of the release of jaxlib: `pip install "{name}=={jaxlib}"`'
            yield name, release, "" if release == jaxlib else fix, release != jaxlib


def _jax_behavior() -> Checks:
    """Check that JAX behaves as the core needs."""
    from packaging.version import Version

    from nbmodule.base.jax_names import NEWEST_KNOWN, check_jax

    name = "jax's behavior"
    try:
        check_jax()
    except ImportError as error:
        yield name, "not as the core needs", str(error), True
        return
    is_newer = Version(_installed("jax") or "0") > Version(f"{NEWEST_KNOWN}.99")
    fix = f"newer than {NEWEST_KNOWN}, the last tested release; please report what is odd"
    yield name, "passes the self-check", fix if is_newer else ""


def _requirements(package: str) -> list[Any]:
    """Return what an installed package requires, without extras."""
    from packaging.requirements import Requirement

    with suppress(PackageNotFoundError):
        requirements = map(Requirement, requires(package) or [])
        return [requirement for requirement in requirements if requirement.marker is None]
    return []


def _devices() -> Checks:
    import jax

    devices, backend = jax.devices(), jax.default_backend()
    models = sorted({device.device_kind for device in devices})
    yield backend, f"{len(devices)} × {', '.join(models)}"
    if backend == "cpu" and shutil.which("nvidia-smi"):
        yield "gpu", "there is one that JAX does not use", '`pip install "jax[cuda13]"`'
    folder = getattr(jax.config, "jax_compilation_cache_dir", None)
    fix = "`nb.cache_compiles()`, or JAX_COMPILATION_CACHE_DIR=~/.cache/jax, saves later compiles"
    kept = f"kept in {folder}" if folder else "kept while this process lives"
    yield "compiled programs", kept, "" if folder else fix


def _displays() -> Checks:
    if is_marimo():
        yield "here", "marimo: static HTML", "fold and search work; a live view needs Jupyter"
    elif running_kernel() is not None:
        form = chosen_form(None)
        text = "HTML, joined to the kernel" if form == "auto" else f"the {form} form"
        yield "here", f"a notebook: {text}"
    else:
        chosen_form(None)
        has_color = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        color = "with color" if has_color else "without color"
        yield "here", f"no notebook: text, {terminal_width()} columns, {color}"
    setting = os.environ.get("NBMODULE_DISPLAY")
    if setting is not None:
        yield "NBMODULE_DISPLAY", setting, "unset it to choose the display automatically"
    installed = [(name, _installed(name)) for name in _NOTEBOOKS if _installed(name)]
    fix = '`pip install "nbmodule[notebooks]"` brings JupyterLab'
    yield from installed or [("notebooks", "none is installed", fix)]
    fix = "only .png and .pdf of graphs need it: install Graphviz"
    yield ("graphviz", "found") if shutil.which("dot") else ("graphviz", "no program `dot`", fix)


def _running_cells() -> Checks:
    kernel = running_kernel()
    route = find_route(CommPump(kernel), kernel)
    is_fine = route.kind != "none" or kernel is None
    fix = "`pip install -U ipykernel`, then restart the kernel"
    yield "stop and steer", route.text, "" if is_fine else fix


def _extras() -> Checks:
    for extra, (purpose, packages) in _EXTRAS.items():
        missing = [name for name in packages if not _installed(name)]
        present = [f"{name} {_installed(name)}" for name in packages if name not in missing]
        fix = f'for {", ".join(missing)}: `pip install "nbmodule[{extra}]"`' if missing else ""
        yield extra, f"{purpose}: {', '.join(present) or 'not installed'}", fix
