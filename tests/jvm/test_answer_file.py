"""Bytes that the JVM hands over past py4j, and what keeps it from doing so."""

import contextlib
import os
from pathlib import Path

import pytest

from sparklog.jvm.gateway import NOWHERE, AnswerFile
from tests.jvm.probe import Probe, pack

SMALL, LARGE = b"x" * 4096, bytes(range(256)) * 4000


def answered(probe: Probe, into: str, answer: bytes) -> bytes:
    return probe.call("answer_file", pack([into.encode(), answer]))


@pytest.mark.parametrize("answer", [b"", b"x", SMALL, SMALL + b"x", LARGE, bytes(5 << 20)])
def test_it_arrives_whole(probe: Probe, answer: bytes) -> None:
    with AnswerFile() as answer_file:
        by_py4j = answered(probe, answer_file.into, answer)
        assert by_py4j == (answer if len(answer) <= len(SMALL) else b"")
        assert answer_file.taken(by_py4j) == answer


def test_many_of_them_hold_nothing(probe: Probe) -> None:
    def held() -> list[str]:
        """Return the descriptors that an AnswerFile opens; threads may open or close files."""
        links = []
        for number in os.listdir("/proc/self/fd"):
            with contextlib.suppress(FileNotFoundError):
                links.append(os.readlink(f"/proc/self/fd/{number}"))
        return [link for link in links if link.startswith("/memfd:sparklog")]

    files = held()
    for _ in range(50):
        with AnswerFile() as answer_file:
            assert answer_file.taken(answered(probe, answer_file.into, LARGE)) == LARGE
        answer_file.close()
        with AnswerFile():
            assert len(held()) == len(files) + 1
    assert held() == files


def test_another_file_in_its_place_is_left_alone(probe: Probe, tmp_path: Path) -> None:
    """Another container's process of that number, or a file that was opened since."""
    other = tmp_path / "precious"
    other.write_bytes(b"precious")
    with AnswerFile() as answer_file, other.open("r+b") as file:
        path, link = answer_file.into.split(" ", 1)
        theirs = f"{os.path.dirname(path)}/{file.fileno()} {link}"
        assert answered(probe, theirs, LARGE) == LARGE
        assert answer_file.taken(LARGE) == LARGE
    assert other.read_bytes() == b"precious"


def test_it_comes_by_py4j_where_there_is_no_file(
    probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    with AnswerFile() as answer_file:
        gone = answer_file.into
    for into in (gone, "/proc/1/fd/9999 /memfd:x (deleted)", "/no/such /file", NOWHERE):
        assert answered(probe, into, LARGE) == LARGE
    monkeypatch.delattr(os, "memfd_create")
    with AnswerFile() as without:
        assert without.into == NOWHERE
        assert without.taken(answered(probe, without.into, LARGE)) == LARGE
