"""Every block of code of the README and of docs/ runs, and prints what its page shows.

Pages that name `spark` are in tests/spark/test_pages.py.
"""

from __future__ import annotations

import uuid
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.doc_blocks import pages
from tests.doc_blocks.run import cases, run
from tests.doc_blocks.session import Session, Wrong
from tests.doc_blocks.shown import alike
from tests.paths import ROOT


@pytest.mark.parametrize("page", cases(spark=False))
def test_a_page_does_what_it_says(
    page: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    run(page, tmp_path, request)


@pytest.mark.parametrize("page", pages.PAGES, ids=pages.name_of)
def test_no_block_is_overlooked(page: Path) -> None:
    assert pages.faults(page) == []


def test_the_readme_says_how_many_blocks_are_left_out() -> None:
    """And each says why."""
    left_out = [reason for page in pages.PAGES for reason in pages.left_out(page)]
    print("\n".join(left_out))
    assert f"except {len(left_out)} blocks" in (ROOT / "README.md").read_text()
    assert all(len(reason.split(": ", 1)[1]) > 20 for reason in left_out)


def ran(tmp_path: Path, text: str, **options: bool) -> str:
    """The page's text behind a run of it."""
    page = tmp_path / "page.md"
    page.write_text(text)
    (tmp_path / "here").mkdir()
    Session(page, tmp_path / "here", **options).run()
    return page.read_text()


TWO = "```console\n$ echo one\n{}\n$ echo two; false\n{}\n```\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("```python\n1 / 0\n```\n", ZeroDivisionError),
        ("```python\nprint(1)\n```\n\n```output\n2\n```\n", Wrong),
        ("```sh\ntrue\nfalse\n```\n", Wrong),
        (TWO.format("one", "two"), Wrong),  # for its exit code
        ("<!-- ends-with: 1 -->\n" + TWO.format("one", "three"), Wrong),
        ("<!-- ends-with: 1 -->\n" + TWO.format("", "two"), Wrong),
        ("```python\ndef test_it():\n    assert False\n```\n", Wrong),
        ("```console\necho one\n```\n", Wrong),
    ],
)
def test_what_is_not_so_is_found(tmp_path: Path, text: str, why: type[Exception]) -> None:
    with pytest.raises(why):
        ran(tmp_path, text)


def test_what_is_printed_can_be_written(tmp_path: Path) -> None:
    before = (
        "```sh\nsparklog topics create /data/log --topic t\n```\n\n"
        "```console\n$ sparklog topics list /data/log\n$ cat note.txt | tr a-z A-Z\n```\n"
        '\n```text title="note.txt"\nlate\n```\n'
    )
    before = before[before.index("\n```text") :] + before[: before.index("\n```text")]
    after = ran(tmp_path, before, write=True)
    assert after == before.replace("/data/log\n$ cat", "/data/log\nt\n$ cat").replace(
        "A-Z\n", "A-Z\nLATE\n"
    )
    (tmp_path / "here").rename(tmp_path / "before")
    assert ran(tmp_path, after) == after


def test_what_varies_may_vary(tmp_path: Path) -> None:
    text = (
        "```python\nprint('12:3 at 2026-11-23T06:30:00Z, 1795312995976, in 7 ms, 12.5 KiB')\n"
        "```\n\n```output\n{}\n```\n"
    )
    ran(tmp_path, text.format("12:3 at 2025-01-01T00:00:00Z, 1695312995976, in 1.5 s, 1 MiB"))
    (tmp_path / "here").rename(tmp_path / "before")
    with pytest.raises(Wrong):
        ran(tmp_path, text.format("12:4 at 2025-01-01T00:00:00Z, 1695312995976, in 1 s, 1 MiB"))


UUIDS = st.one_of(
    st.uuids(version=4), st.just(uuid.UUID("1b0e2ae5-471d-4016-87d3-0123456789ab"))  # 471 days
)


@given(UUIDS, UUIDS)
def test_any_id_is_like_any_other(one: uuid.UUID, other: uuid.UUID) -> None:
    """Whatever parts of it look like: times, sizes, rates."""
    for written in (
        str, lambda each: each.hex, lambda each: f"000000000000009.4.orders.{each.hex[-12:]}",
        lambda each: urlsafe_b64encode(b"h\x17" + each.bytes[2:]).decode().rstrip("="),  # "aB..."
    ):  # fmt: skip
        assert alike(f"query {written(one)} at 3", f"query {written(other)} at 3")
        assert not alike(f"query {written(one)} at 3", f"query {written(other)} at 4")


def test_a_quick_machine_is_no_difference() -> None:
    """It prints no span below a second."""
    assert alike("audit is 1 record behind (2 s)", "audit is 1 record behind")
    assert alike("audit is 1 record behind (1 min)", "audit is 1 record behind (3 s)")
    assert alike("last change 2 s ago", "last change just now")
    assert not alike("audit is 1 record behind (2 s)", "audit is 2 records behind")
    assert not alike("last change 2 s ago", "last change never")
