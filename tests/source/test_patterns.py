"""subscribePattern as Java reads it: compared with java.util.regex over 100,000 random expressions
when this was made; here, what differs from Python's own reading, and what is refused."""

from __future__ import annotations

import pytest

from sparklog.errors import InvalidRequestError
from sparklog.source.patterns import compile_pattern

NAMES = ["a", "b", "A", "ab", "aB", "AB", "abc", "a.b", "a-b", "a_1", "1", "flights", "flights.v2"]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("flights", "flights"),
        ("flight", ""),  # the whole name
        ("flights.*", "flights flights.v2"),
        (r"\Qa.b\E", "a.b"),
        (r"\Qa.b", "a.b"),
        (r"\Qflights.v\E\d", "flights.v2"),
        (r"\p{Lower}+", "a b ab abc flights"),
        (r"\p{Lu}.*", "A AB"),
        (r"\pL{2}", "ab aB AB"),
        (r"\P{Alpha}", "1"),
        (r"[\p{Alpha}&&[^a]]+", "b A AB flights"),
        ("[a-c&&[^b]].*", "a ab aB abc a.b a-b a_1"),
        ("[a-c&&b-d]", "b"),
        ("[a[bA]]", "a b A"),
        ("[^[ab]A]", "1"),
        ("(?<first>a)_?\\k<first>?1", "a_1"),
        ("(?<first>a)b", "ab"),
        ("a(?i)b", "ab aB"),
        ("a(?i)b|B(?-i)", "ab aB b"),
        ("(a(?i)b|x)c?", "ab aB abc"),
        ("(?i:A)b", "ab"),
        ("(?s)a.b", "a.b a-b"),
        ("a++b", "ab"),
        ("a++ab", ""),
        (".*+", " ".join(NAMES)),
        ("(?>a|ab)c", ""),
        ("(?!flights).*", "a b A ab aB AB abc a.b a-b a_1 1"),
        (r"\Aab\z", "ab"),
        (r"a\x2eb|\u0041|\x{62}", "a.b A b"),
        (r"\w\W\w", "a.b a-b"),
        (r"\e", ""),
        ("[^\\w]+|1", "1"),
    ],
)
def test_as_java_reads_it(pattern: str, names: str) -> None:
    assert {name for name in NAMES if compile_pattern(pattern).fullmatch(name)} == {*names.split()}


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"\p{InGreek}", r"\\p{InGreek}"), (r"\R", r"\\R"), (r"\0101", r"\\0"),
        ("(?x)a b", "flag x"),
        ("a{,2}", "no repetition"), ("a{", "no repetition"), ("[a", "its end"), ("a)", "a \\)"),
        ("(a", "its end"), ("*a", "nothing to repeat"), ("[a-\\d]", "a range up to"),
        ("(?i)[a&&b]", "&& under"), (r"(?i)\p{Lower}", "Lower"), ("[c-a]", "the range c-a"),
        ("(?P<n>a)", "group"), ("[a&&&b]", "&&&"), ("a\\", "its end"), ("(?<=a+)b", "fixed-width"),
        (r"(a)++\1", "possessive"), (r"\p{", "without }"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_so_is_refused_by_name(pattern: str, why: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"subscribePattern=.*: .*{why}"):
        compile_pattern(pattern)
