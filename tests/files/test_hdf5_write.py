from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from nbmodule.files.hdf5_write import submit


def test_a_pool_that_takes_nothing_more_is_done_without():
    pool = ThreadPoolExecutor(1)
    assert submit(pool, max, [3, 4], default=1).result() == 4
    pool.shutdown()
    assert submit(pool, max, [3, 4], default=1).result() == 4


def test_an_error_of_the_function_is_raised():
    with ThreadPoolExecutor(1) as pool, pytest.raises(ZeroDivisionError):
        submit(pool, divmod, 1, 0).result()
