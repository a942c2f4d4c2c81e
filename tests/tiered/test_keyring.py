"""Key rings: dicts and files, and what is wrong with them."""

import base64
import json
from pathlib import Path

import pytest

from sparklog.errors import InvalidRequestError
from sparklog.tiered.keyring import Keyring

OLD, NEW = b"o" * 32, b"n" * 32
OLD64, NEW64 = base64.b64encode(OLD).decode(), base64.b64encode(NEW).decode()


def test_a_dict():
    ring = Keyring({"2026-10": OLD, "2026-11": NEW}, "2026-11")
    assert ring.ids == ["2026-10", "2026-11"]
    assert (ring.current, ring.key("2026-11"), ring.find("2026-10")) == ("2026-11", NEW, OLD)
    assert ring.find("2026-09") is None


def test_no_key_is_shown():
    ring = Keyring({"a": b"topsecret-topsecret-topsecret-32"}, "a")
    assert repr(ring) == str(ring) == "Keyring(a; current a)"


@pytest.mark.parametrize(
    ("keys", "current", "why"),
    [
        ({"a": b"short"}, "a", "must have 32 bytes"),
        ({"a": "x" * 32}, "a", "must have 32 bytes"),
        ({"a": OLD}, "b", r"current master key 'b' isn't in the key ring \(a\)"),
        ({}, "a", "isn't in the key ring"),
        ({"a key": OLD}, "a key", "an id has 1 to 128 letters"),
        ({"": OLD}, "", "an id has 1 to 128 letters"),
    ],
)
def test_wrong_rings(keys, current, why):
    with pytest.raises(InvalidRequestError, match=why):
        Keyring(keys, current)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"current": "new", "keys": {"old": OLD64, "new": NEW64}}),
        f"# rotated in November\n\nold {OLD64}\n  new\t{NEW64}\n",
        f"old {OLD64}\r\nnew {NEW64}",
    ],
)
def test_files(tmp_path: Path, text):
    path = tmp_path / "keys"
    path.write_text(text)
    ring = Keyring.load(str(path))
    assert (ring.key("old"), ring.key("new"), ring.current) == (OLD, NEW, "new")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing",
        "{",
        "[]",
        '{"keys": {}}',
        '{"current": "a", "keys": {"a": 5}}',
        '{"current": "a", "keys": ["a"]}',
        "a topsecret-no-base64!",
        f"a {OLD64}\na {NEW64}",
        f"a {OLD64} more",
        "lonely",
    ],
)
def test_files_that_are_none(tmp_path: Path, text):
    path = tmp_path / "keys"
    path.write_text(text)
    with pytest.raises(InvalidRequestError, match="not a key ring: the file must be JSON") as error:
        Keyring.load(str(path))
    assert str(path) in str(error.value)
    assert "topsecret" not in str(error.value)
    assert error.value.__suppress_context__


def test_files_that_are_elsewhere_or_binary(tmp_path: Path):
    with pytest.raises(InvalidRequestError, match="the key ring does not exist"):
        Keyring.load(str(tmp_path / "none"))
    (tmp_path / "raw").write_bytes(b"\xff\xfe" * 16)
    with pytest.raises(InvalidRequestError, match="not a key ring"):
        Keyring.load(str(tmp_path / "raw"))
    (tmp_path / "short").write_text(f"a {base64.b64encode(b'short').decode()}")
    with pytest.raises(InvalidRequestError, match=r"short: master key .a. must have 32 bytes"):
        Keyring.load(str(tmp_path / "short"))
