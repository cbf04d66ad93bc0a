import time

import numpy as np
import pytest

import nbmodule as nb


def test_two_processes_give_the_losses_of_one(hosts, tmp_path):
    alone, facts, _ = hosts(1, 4, steps=4, folder=tmp_path / "alone")
    together, shared, ended = hosts(2, 2, steps=4, folder=tmp_path / "together")
    assert [code for _, _, code in ended] == [0, 0], "\n\n".join(said for _, said, _ in ended)
    assert list(together) == list(alone) == list(range(4))
    np.testing.assert_allclose(list(together.values()), list(alone.values()), rtol=2e-6)
    # What is tracked is of the global batch.
    assert shared[0]["mean"] == pytest.approx(facts[0]["mean"], rel=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("processes", [2, 4])
def test_when_a_process_dies_the_others_end_and_training_resumes(hosts, tmp_path, processes):
    alone, _, _ = hosts(1, 4, folder=tmp_path / "alone")
    start = time.monotonic()
    before, _, ended = hosts(processes, 4 // processes, dies_at=5, folder=tmp_path / "run")
    assert time.monotonic() - start < 90
    assert [code for _, _, code in ended][1] == 9
    assert all(code != 0 for _, _, code in ended)
    assert "Task 1 heartbeat timeout" in ended[0][1] or "Connection" in ended[0][1]
    after, _, ended = hosts(processes, 4 // processes, folder=tmp_path / "run")
    assert [code for _, _, code in ended] == [0] * processes
    assert list(after) == [3, 4, 5, 6, 7]
    np.testing.assert_allclose(list((before | after).values()), list(alone.values()), rtol=2e-6)


def test_impossible_numbers_of_processes_are_refused():
    with pytest.raises(nb.ArgumentError, match="process must be from 0 to 1"):
        nb.join_hosts("localhost:1", 2, 2)
    with pytest.raises(nb.ArgumentError, match="'host:port' of process 0"):
        nb.join_hosts(processes=2)
    with pytest.raises(nb.ArgumentError, match="lost_after must be at least 1.*got 0"):
        nb.join_hosts(lost_after=0)


def test_joining_too_late_is_said(run_python):
    code = """
        import nbmodule as nb
        nb.Linear(2, 2).weight.value
        try:
            nb.join_hosts("localhost:1", 1, 0)
        except nb.DeviceError as error:
            print(error)
    """
    assert "devices are in use already" in run_python(code)
