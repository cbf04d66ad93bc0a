"""`nb.cache_compiles`: a second process reads what the first compiled."""

import jax
import pytest

import nbmodule as nb

STEP = """
import jax, jax.numpy as jnp, nbmodule as nb
from jax import monitoring
heard = []
monitoring.register_event_listener(lambda event, **_: heard.append(event.rpartition("/")[2]))
jax.jit(lambda x: x * 3 + 1)(jnp.ones(3))  # something is compiled before
print(nb.cache_compiles({folder!r}, min_seconds=0))
heard.clear()
model, optimizer = nb.Sequential(nb.Linear(3, 4, key=0), nb.ReLU(), nb.Linear(4, 1, key=1)), nb.Adam(1e-2)

@nb.jit(donate=True)
def step(x):
    loss, grads = nb.value_and_grad(lambda m: (m(x) ** 2).mean())(model)
    optimizer.update(model, grads)
    return loss

print(float(step(jnp.ones((2, 3)))))
print(heard.count("cache_hits"), heard.count("cache_misses"))
"""


@pytest.fixture
def settings():
    kept = "persistent_cache_min_compile_time_secs", "persistent_cache_min_entry_size_bytes"
    names = [f"jax_{name}" for name in ("compilation_cache_dir", *kept)]
    before = {name: getattr(jax.config, name) for name in names}
    yield
    for name, value in before.items():
        jax.config.update(name, value)


def test_a_second_process_reads_what_the_first_has_compiled(run_python, tmp_path):
    code = STEP.format(folder=str(tmp_path / "programs"))
    first, second = (run_python(code).splitlines() for _ in range(2))
    assert first[0] == str(tmp_path / "programs")
    assert second[1] == first[1]
    (_, compiled), (hits, misses) = (map(int, lines[2].split()) for lines in (first, second))
    assert compiled > 0 and hits > 0 and misses == 0


def test_the_usual_folder_is_that_of_the_environment(monkeypatch, tmp_path, settings):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "a"))
    assert nb.cache_compiles() == tmp_path / "a"
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "a")
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "caches"))
    assert nb.cache_compiles() == tmp_path / "caches" / "nbmodule" / "compiled"


def test_a_folder_that_cannot_be_made_is_refused_and_nothing_is_changed(tmp_path, settings):
    (tmp_path / "file").write_text("")
    before = jax.config.jax_compilation_cache_dir
    with pytest.raises(nb.ArgumentError, match=r"compiled programs in .*file.*Give another folder"):
        nb.cache_compiles(tmp_path / "file" / "inner")
    with pytest.raises(nb.ArgumentError, match="min_seconds must be at least 0, got -1"):
        nb.cache_compiles(tmp_path, min_seconds=-1)
    assert jax.config.jax_compilation_cache_dir == before
