"""The commands that the README promises exist, do what it says, and ask for nothing they do not
need.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.project.conftest import ROOT, run
from tools.layers import LEVEL

from compiler import knows

PLUGINS = os.pathsep.join([str(ROOT / "tests" / "plugins"), os.environ.get("PYTHONPATH", "")])


@pytest.fixture
def make():
    """`make -n`: what a command would run, in this folder, with everything still to be made."""
    if shutil.which("make") is None:
        pytest.skip("make is missing: `sudo apt-get install make`")

    def dry_run(*arguments: str) -> str:
        command = ["make", "--dry-run", "--always-make", "--no-print-directory", *arguments]
        done = run(*command, env={"MAKEFLAGS": ""})
        assert done.returncode == 0, done.stderr
        return done.stdout

    return dry_run


def pytest_in(folder: Path, *options: str, **env: str) -> str:
    """The last line of a run of pytest on a folder of its own."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    return run(*command, "--rootdir", folder, folder, cwd=folder, env=env).stdout.splitlines()[-1]


def test_the_readme_names_the_two_commands_and_the_demo():
    text = (ROOT / "README.md").read_text()
    assert {"make lab", "make test", "make demo"} <= set(re.findall(r"make \w+", text))


def test_each_command_of_the_readme_and_of_the_help_can_be_planned(make):
    for text in ((ROOT / "README.md").read_text(), run("make", "help").stdout):
        for command in re.findall(r"(?:`|^)make (\w+)", text, re.M):
            make(command)


def test_lab_makes_notebooks_and_opens_the_one_that_binder_opens(make):
    plan = make("lab", "LAB_FLAGS=--no-browser --port=8899")
    assert '--editable ".[notebooks]"' in plan
    first = "/lab/tree/notebooks/01_first_model.ipynb"
    flags = rf"-m jupyterlab .*--LabApp.default_url={first} .*--no-browser --port=8899"
    assert re.search(flags, plan)
    assert first in (ROOT / "binder" / "postBuild").read_text()
    assert "jupytext --quiet --sync notebooks/*.py" in plan
    assert f'--ServerApp.root_dir="{ROOT}"' in plan


def test_a_test_run_calls_no_sudo(make):
    assert "--ask" not in make("test")
    assert "tools/provision --again --ask" in make("provision")


def test_the_smoke_suite_has_a_file_of_each_package():
    listed = run("make", "-s", "smoke-files").stdout.split()
    files = [name for name in listed if not name.startswith("--deselect=")]
    assert [name for name in files if not (ROOT / name).exists()] == []
    packages = {folder.name for folder in (ROOT / "tests").iterdir() if folder.name in LEVEL}
    # interop is about other frameworks
    assert {name.split("/")[1] for name in files} >= packages - {"interop"}
    texts = [(ROOT / name).read_text() for name in files if (ROOT / name).is_file()]
    assert not any("import torch" in text for text in texts)


def test_only_tests_of_browsers_and_kernels_are_tried_again(tmp_path):
    (tmp_path / "test_small.py").write_text(
        "import pytest\n"
        "@pytest.fixture\ndef shared_kernel(): pass\n"
        "def test_core(): assert False\n"
        "def test_of_a_kernel(shared_kernel): assert False\n"
    )
    last = pytest_in(tmp_path, "-p", "patience", NBMODULE_RERUNS="2", PYTHONPATH=PLUGINS)
    assert last.startswith("2 failed, 2 rerun")


def test_tests_that_a_shell_starts_in_the_background_press_the_interrupt_key_all_the_same():
    test = "tests/live/test_interrupt.py::test_the_first_press_ends_the_loop_at_the_next_boundary"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    done = run("sh", "-c", '"$@" & wait $!', "sh", *command)
    assert re.match(r"\d+ passed in", done.stdout.splitlines()[-1]), done.stdout


def test_the_collector_looks_through_what_the_tests_of_one_file_have_made(tmp_path):
    node = "class Node:\n    def __init__(self):\n        self.own = self\n\n\n"
    (tmp_path / "test_first.py").write_text(
        f"import builtins, weakref\n\n\n{node}"
        "def test_that_leaves_something():\n    builtins.kept, builtins.left = Node(), weakref.ref(Node())\n"
    )
    (tmp_path / "test_second.py").write_text(
        f"import builtins, gc, weakref\n\n\n{node}"
        "def test_what_is_alive_is_set_aside_and_what_is_not_was_freed():\n"
        "    assert builtins.left() is None\n"
        "    assert all(each is not builtins.kept for each in gc.get_objects())\n\n\n"
        "def test_what_a_test_makes_is_freed():\n"
        "    gone = weakref.ref(Node())\n    gc.collect()\n    assert gone() is None\n"
    )
    assert pytest_in(tmp_path, "-p", "heap", PYTHONPATH=PLUGINS).startswith("3 passed")


def test_tests_are_compiled_with_little_effort_and_as_for_users_in_one_process(run_python):
    code = """
    import os
    from compiler import effort, is_quick, knows
    import jax
    from jax._src import compiler

    assert not knows("xla_cpu_no_such_flag")
    compiled, f = [], jax.jit(lambda x: x + 1)
    hear = lambda name, *_, **__: compiled.append(name) if "backend_compile" in name else None
    jax.monitoring.register_event_duration_secs_listener(hear)
    for is_little in (False, True, False):
        effort.set(is_little)
        before = len(compiled)
        f(1), f(1)
        print(
            len(compiled) > before, jax.config.values["jax_disable_most_optimizations"], compiler.get_compile_options(1, 1).env_option_overrides,
            os.environ.get("JAX_DISABLE_MOST_OPTIMIZATIONS"), os.environ["XLA_FLAGS"].split()[1:],
        )
    print(jax.device_count(), *map(is_quick, ("tests/core/test_frame.py::test", "tests/nn/functional/test_losses.py::test", "docs/index.md")))
    """
    flags = {"xla_cpu_use_fusion_emitters": False, "xla_cpu_parallel_codegen_split_count": 1}
    by_program = [(name, value) for name, value in flags.items() if knows(name)]
    by_process = [f"--{name}={str(value).lower()}" for name, value in by_program]
    users, little = "True False [] 0 []", f"True True {by_program} 1 {by_process}"
    env = {"NBMODULE_OPTIMIZE": "some", "PYTHONPATH": PLUGINS, "XLA_FLAGS": ""}
    env["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "0"
    printed = run_python(code, devices=2, env=env).splitlines()
    assert printed == [users, little, users, "2 True False False"]


def test_nothing_is_run_by_the_name_python(make):
    for command in ("lab", "demo", "test", "lint"):
        assert not re.search(r"(?:^|[;&|{]) *(?:python|pip|jupyter)\s", make(command), re.M)


def test_an_environment_that_is_up_to_date_is_left_alone(tmp_path):
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    venv = tmp_path / ".venv"
    venv.mkdir()
    (venv / "folder").write_text(f"{tmp_path}\n")
    stamp = venv / "installed-notebooks"
    stamp.touch()

    def plan() -> str:
        return run("make", "--dry-run", "demo", cwd=tmp_path).stdout

    assert "pip install" not in plan()
    os.utime(tmp_path / "pyproject.toml", (stamp.stat().st_mtime + 10,) * 2)
    assert "pip install" in plan()
    os.utime(tmp_path / "pyproject.toml", (0, 0))
    (venv / "folder").write_text("/elsewhere\n")
    assert "pip install" in plan()


def test_continuous_integration_lets_no_test_be_skipped_for_a_missing_program():
    text = (ROOT / ".ci" / "run").read_text()
    assert "NBMODULE_REQUIRE_ALL=1" in text
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_a_worker_that_dies_ends_the_run_as_failed(make, tmp_path):
    """pytest-xdist alone puts another in its place, which waits for ever for tests that were
    already done.
    """
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for name in "abcd":
        (tmp_path / f"test_{name}.py").write_text("def test_one(): pass\ndef test_two(): pass\n")
    dies = "import os\ndef test_one(): pass\ndef test_two(): os._exit(3)\n"
    (tmp_path / "test_b.py").write_text(dies)
    (spread,) = re.findall(r"-m pytest (.*)", make("test-all", "WORKERS=1", "TEST_FLAGS="))
    settings = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *spread.split(), "."]
    options = {"cwd": tmp_path, "env": settings, "timeout": 200}
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "crashed while running 'test_b.py::test_two'" in done.stdout
