"""The page of figures says why a target is missed."""

from benchmarks.report import MISSES, PAGE, explained

PAGE_TEXT = PAGE.read_text(encoding="utf-8")


def test_each_target_that_is_missed_has_its_reason():
    sections = ["### " + part for part in PAGE_TEXT.split("### ")[1:]]
    for section in sections:
        missed = [
            line.split("|")[1].strip() for line in section.splitlines() if "**missed**" in line
        ]
        assert all(f"*{name}*{MISSES}" in section for name in missed)


def test_reasons_stand_on_the_page_as_the_benchmarks_have_them():
    assert explained(PAGE_TEXT) == PAGE_TEXT


def test_reasons_are_written_below_their_table_and_anew():
    page = "# P\n\n### Compiled call, 10 leaves\n\n| a |\n|---|\n| nb.jit | 2 **missed** |\n\n*nb.jit* misses its target: old.\n\n## next\n"
    once = explained(page)
    assert once.count("misses its target") == 1
    assert "old." not in once
    assert once.index("**missed**") < once.index("misses its target") < once.index("## next")
    assert explained(once) == once
    assert explained(page.replace(" **missed**", "")).count("misses") == 0
