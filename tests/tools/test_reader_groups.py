"""Forms in which resets are given: topics, durations, CSV."""

import csv
import io
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import InvalidRequestError
from sparklog.log.reader_reset import PlannedOffset, ResetPlan
from sparklog.tools.reader_groups import parse_duration, parse_plans, parse_topics, plans_csv


def plan(group: str, *rows: tuple[str, int, int]) -> ResetPlan:
    unused: Any = None
    return ResetPlan(
        unused, group,
        tuple(PlannedOffset(topic=t, partition=p, before=None, offset=o) for t, p, o in rows),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("texts", "wanted"),
    [
        (["t"], {"t": None}), (["t:0"], {"t": [0]}), (["t:2,0", "u"], {"t": [2, 0], "u": None}),
        (["t:0", "t:1"], {"t": [0, 1]}), (["t:0", "t"], {"t": None}), (["t", "t:0"], {"t": None}),
        ([], {}),
    ],
)  # fmt: skip
def test_topics(texts: list[str], wanted: dict[str, Any]) -> None:
    assert parse_topics(texts) == wanted


@pytest.mark.parametrize("text", ["t:", "t:x", "t:0:1", "t:-1", "t:0,", "t:1.5"])
def test_what_names_no_partitions(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="Invalid"):
        parse_topics([text])


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("PT1S", 1), ("PT0.5S", 0.5), ("P1D", 86400), ("P1DT2H3M4.25S", 93784.25), ("pt1h", 3600),
        ("-PT1M", -60), ("PT-1M", -60), ("PT1H-30M", 1800), ("+P2D", 172800), ("PT.5S", None),
        ("P", None), ("PT", None), ("P1DT", None), ("1H", None), ("PT1", None), ("P1H", None),
        ("P1Y", None), ("PT1.5H", None), ("", None), ("P1D ", None),
    ],
)  # fmt: skip
def test_durations_are_javas(text: str, seconds: float | None) -> None:
    if seconds is None:
        with pytest.raises(InvalidRequestError, match="must have the form PnDTnHnMnS"):
            parse_duration(text)
    else:
        assert parse_duration(text) == timedelta(seconds=seconds)


topics = st.text(st.sampled_from("abcXYZ019._-"), min_size=1, max_size=30)
rows = st.tuples(topics, st.integers(0, 99), st.integers(0, 2**63 - 1))


@given(st.dictionaries(st.text(min_size=1).filter(str.isprintable), st.lists(rows, min_size=1)))
def test_a_plan_comes_back_from_its_csv(plans: dict[str, list[tuple[str, int, int]]]) -> None:
    text = plans_csv([plan(group, *found) for group, found in plans.items()], with_group=True)
    assert all(len(row) == 4 for row in csv.reader(io.StringIO(text)))
    wanted: dict[str, dict[str, dict[int, int]]] = {}
    for group, found in plans.items():
        for topic, partition, offset in found:
            wanted.setdefault(group, {}).setdefault(topic, {})[partition] = offset
    assert parse_plans(text + "\n", list(plans)) == wanted


@pytest.mark.parametrize(
    ("text", "groups"),
    [("t,0,1", ["g", "h"]), ("t,0,1", []), ("g,t,0", ["g"]), ("a,b,c,d,e", ["g"]), ("t", ["g"])],
)
def test_what_is_no_plan(text: str, groups: list[str]) -> None:
    with pytest.raises(InvalidRequestError, match="plan, row 1: "):
        parse_plans(text, groups)
