"""What the documentation says: reference pages are the code's, links and named files exist."""

import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

from sparklog.format import batch, index, producer_snapshot
from sparklog.session.setup import CHECKPOINT_KEYS, PREFIX
from tests.reference import DOCS, PAGES

ROOT = DOCS.parent
TEXTS = sorted([ROOT / "README.md", *DOCS.glob("*.md"), *(ROOT / "sparklog").rglob("*.md")])


@pytest.mark.parametrize("name", PAGES)
def test_a_reference_page_is_the_codes(name: str) -> None:
    assert (DOCS / name).read_text() == PAGES[name](), "run: python -m tests.reference"


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_page_names_exists(text: Path) -> None:
    said = text.read_text()
    for name in re.findall(r"`((?:tests|sparklog|examples|docs|docker|scripts)/[\w./*]+)`", said):
        assert list(ROOT.glob(name)), name
    for link in re.findall(r"\]\(([^)#:]+)(?:#[\w-]+)?\)", said):
        assert (text.parent / link).exists(), link


def test_the_layers_are_as_the_page_says() -> None:
    """The sentence of docs/architecture.md, against the contract that `make lint` checks."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = [
        sorted(re.findall(r"sparklog\.(\w+)", layer))
        for layer in reversed(project["contracts"][0]["layers"])
    ]
    page = " ".join((DOCS / "architecture.md").read_text().split())
    sentence = page.split("In words: ")[1].split(". ")[0]
    said = [re.findall(r"\w+", names) for names in sentence.split("<")]
    assert [sorted(names) for names in said] == layers


FORMATS = (ROOT / "sparklog/format/README.md").read_text()
SIZES = {"i8": "b", "i16": "h", "i32": "i", "i64": "q", "u32": "I"}


def test_the_header_of_a_batch_is_as_the_page_says() -> None:
    """Types and positions of the picture, against the struct that packs it."""
    picture = FORMATS.split("## Record batch (magic 2)")[1].split("```")[1].splitlines()
    positions = [int(n) for n in picture[1].split()]
    types = re.findall(r"[iu]\d+", next(line for line in picture if "i64" in line))
    assert ">" + "".join(SIZES[t] for t in types) == batch.HEADER.format
    assert positions[-1] == batch.HEADER.size
    ends = np.cumsum([int(t[1:]) // 8 for t in types])
    assert positions == [0, *ends.tolist()]


ENTRIES = {
    ".index": index.OFFSET_ENTRY,
    ".timeindex": index.TIME_ENTRY,
    ".txnindex": index.TXN_ENTRY,
}


@pytest.mark.parametrize("suffix", ENTRIES)
def test_an_index_entry_is_as_the_page_says(suffix: str) -> None:
    dtype = ENTRIES[suffix]
    (row,) = re.findall(rf"^\| `{re.escape(suffix)}` \| ([^|]*) \|", FORMATS, re.MULTILINE)
    types = [">" + t[0] + str(int(t[1:]) // 8) for t in re.findall(r"\bi\d+", row)]
    assert types == [dtype[name].str for name in dtype.names or ()]


def test_the_checkpoint_managers_settings_are_as_the_page_says() -> None:
    """Names and defaults stand in the JVM's part."""
    scala = "".join(path.read_text() for path in (ROOT / "sparklog/jvm/scala").rglob("*.scala"))
    names = dict(re.findall(rf'val (\w+) = "({re.escape(PREFIX)}[^"]+)"', scala))
    names = {name: key for name, key in names.items() if ".internal." not in key}
    assert set(names.values()) == CHECKPOINT_KEYS.keys()
    read = re.findall(r"conf\.get(?:Long)?\((?:\w+\.)?(\w+), ([^)]+)\)", scala)
    told = {names[name]: text.strip('"') for name, text in read if name in names}
    wanted = {key.name: str(key.default) for key in CHECKPOINT_KEYS.values()}
    assert {name: str(1 << 30) if text == "1L << 30" else text for name, text in told.items()} == (
        wanted
    )


def test_a_producer_snapshot_is_as_the_page_says() -> None:
    said = FORMATS.split("## Producer snapshot")[1].split("##")[0]
    structs = producer_snapshot.HEAD, producer_snapshot.ENTRY
    for part, packed in zip(said.split("then"), structs, strict=True):
        assert ">" + "".join(SIZES[t] for t in re.findall(r"\b[iu]\d+\b", part)) == packed.format
    assert f"{producer_snapshot.ENTRY.size} bytes each" in said
