"""Bytes as text: whatever they are, bounded, and nothing invented."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.ui.browse.values import SHOWN_MAX, Form, preview, render_value


@pytest.mark.parametrize(
    ("raw", "form", "text"),
    [
        (None, Form.NULL, ""),
        (b"", Form.EMPTY, ""),
        (b"hello\tworld\n", Form.TEXT, "hello\tworld\n"),
        ("Zürich 東京".encode(), Form.TEXT, "Zürich 東京"),
        (b"42", Form.TEXT, "42"),
        (b'{"a":1.10,"b":[1e400,-0,{}],"a":"\\"}"}', Form.JSON,
         '{\n  "a": 1.10,\n  "b": [\n    1e400,\n    -0,\n    {}\n  ],\n  "a": "\\"}"\n}'),
        (b"[ ]", Form.JSON, "[]"),
        (b'{"a": ', Form.TEXT, '{"a": '),
        (b"a\x1b[31mred", Form.HEX, None),
        (b"\xff\xfe\x00", Form.HEX, "00000000  ff fe 00" + " " * 42 + "..."),
    ],
)  # fmt: skip
def test_forms(raw, form, text):
    found = render_value(raw)
    assert found.form is form
    assert not found.cut
    if text is not None:
        assert found.text == text


def test_what_a_registry_framed():
    avro = b"\0\0\0\1\7" + b"\x02\x06foo"
    assert (render_value(avro).form, render_value(avro).schema_id) == (Form.HEX, 263)
    with_json = b"\0\0\0\0\x2a" + b'{"x":1}'
    assert (render_value(with_json).form, render_value(with_json).schema_id) == (Form.JSON, 42)
    assert render_value((1234).to_bytes(8, "big")).schema_id is None
    assert render_value(b"\0\0\0\0\1").schema_id is None


def test_numbers_in_binary():
    assert render_value((1234).to_bytes(8, "big")).number == 1234
    assert render_value((-5).to_bytes(4, "big", signed=True)).number == -5
    assert render_value(b"1234", form=Form.HEX).number is None
    assert render_value((1234).to_bytes(8, "big"), most=4).number is None
    assert render_value((1234).to_bytes(8, "big"), size=9).number is None


def test_forms_that_are_asked_for():
    assert render_value(b'{"a":1}', form=Form.TEXT).text == '{"a":1}'
    assert render_value(b"{}", form=Form.HEX).text.startswith("00000000  7b 7d")
    assert render_value(b"\xff", form=Form.TEXT).form is Form.HEX


def test_hostile_nesting_is_bounded():
    deep = b"[" * 900 + b"1," * 50_000 + b"1" + b"]" * 900
    found = render_value(deep)
    assert len(found.text) < 5 * len(deep) + (1 << 17)
    assert render_value(b"[" * 200_000).form is Form.TEXT


@given(st.binary(max_size=300), st.integers(1, 300))
def test_any_bytes(raw, most):
    found = render_value(raw, most=most)
    assert found.size == len(raw)
    assert found.cut or len(raw) <= most or found.form is Form.JSON
    assert len(preview(raw, 20)) <= 24
    assert "\n" not in preview(raw, 20)


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
).filter(lambda v: isinstance(v, dict | list)), st.sampled_from([None, 1, "\t"]))  # fmt: skip
def test_pretty_json_is_the_same_json(value, indent):
    raw = json.dumps(value, indent=indent).encode()
    found = render_value(raw)
    assert found.form is Form.JSON
    assert json.loads(found.text) == value


def test_large_values_are_cut():
    found = render_value("ä".encode() * SHOWN_MAX)
    assert (found.cut, found.size) == (True, 2 * SHOWN_MAX)
    assert set(found.text) == {"ä"}
    assert render_value(b"\xff" * (1 << 20)).cut
    assert preview(b"x" * 1000, 10) == "x" * 10 + "…"
    assert preview(b"a\n  b\tc", 50) == "a b c"
