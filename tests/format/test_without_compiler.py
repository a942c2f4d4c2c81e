"""The package without its compiled kernel: slow, and the same otherwise."""

import re
import subprocess
import sys
from typing import Any

import pytest

from sparklog.format import columns
from tests.format import interpreted
from tests.paths import ROOT

SAMPLE = ("index", "scan", "records", "rows", "sparse_records", "compaction", "state_entries")
KERNEL = ("framer", "offset_map", "parser", "record_filter")
EMPTY = (columns._EMPTY,) * 3


@pytest.mark.deep
def test_the_suite_of_the_format_passes() -> None:
    files = [f"tests/format/test_{name}.py" for name in SAMPLE]
    options = ["-q", "-n0", "-p", "no:cacheprovider", "-p", "tests.format.without_compiler"]
    command = [sys.executable, "-m", "pytest", *options, *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout[-3000:]
    assert re.search(r"^\d{3,} passed", done.stdout, re.MULTILINE)


def test_it_is_the_sources_that_ran() -> None:
    look = "import tests.format.without_compiler, sparklog.format.kernel as k; print(k.COMPILED)"
    done = subprocess.run([sys.executable, "-c", look], cwd=ROOT, capture_output=True, check=True)
    assert done.stdout.split() == [b"False"]


@pytest.mark.parametrize("name", KERNEL)
def test_a_new_object_has_all_that_c_declares(name: str) -> None:
    """C gives what __init__ leaves out as 0 and empty; Python has no such attribute."""
    module = interpreted.load(name)
    declared = (ROOT / f"sparklog/format/{name}.pxd").read_text().partition("cdef class ")[2]
    kind = getattr(module, declared.partition(":")[0])
    attributes: set[str] = set()
    for line in re.findall(r"^    cdef (?!inline)([^()\n]*)$", declared, re.MULTILINE):
        names = re.sub(r"\[[^\]]*\]", "", line).split(", ")
        attributes |= {one.split()[-1] for one in names}
    assert len(attributes) > 5
    given: dict[str, tuple[Any, ...]] = {
        "Framer": (b"", (*EMPTY, -1)), "OffsetMapKernel": (0, 0, 9), "Parser": (1, 1, 1),
        "RecordFilterKernel": (None,),
    }  # fmt: skip
    assert sorted(attributes - vars(kind(*given[kind.__name__])).keys()) == []
