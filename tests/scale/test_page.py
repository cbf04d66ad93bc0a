"""What the page about several devices prints is what eight devices print."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "scale.md").read_text()
SECTION = PAGE[PAGE.index("## The same numbers on eight devices") : PAGE.index("## Measured")]
CODE, PRINTED = re.findall(r"```(?:python|text)\n(.*?)```", SECTION, re.S)


def rows(text):
    """Losses and bytes on each device by plan."""
    found = re.findall(r"^(\S.*?)  +([\d. ]+)  +([\d,]+) bytes", text, re.M)
    return {
        plan: ([float(x) for x in losses.split()], int(held.replace(",", "")))
        for plan, losses, held in found
    }


@pytest.fixture(scope="module")
def ran(run_python):
    return rows(run_python("import nbmodule as nb\n" + CODE, devices=8, timeout=300))


def test_the_page_shows_what_eight_devices_print(ran):
    shown = rows(PRINTED)
    assert list(shown) == list(ran) == ["single device", "data parallel", "FSDP", "tensor parallel"]
    for plan, (losses, held) in shown.items():
        assert ran[plan][0] == pytest.approx(losses, abs=2e-5)
        assert ran[plan][1] == held
