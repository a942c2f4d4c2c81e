"""The list of Kafka's metrics: each documented one has one answer, and the answers are true."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from sparklog.kafka.messages import Api
from tests.kafka_metrics import ABSENT, DOCUMENTED, OTHERS, kafka_markdown, same
from tests.promql import series, unknown


def test_each_documented_metric_has_one_answer() -> None:
    answered = Counter(same().keys())
    answered.update(mbean for each in (*OTHERS, *ABSENT) for mbean in each.mbeans)
    assert sorted(answered) == sorted(DOCUMENTED)
    assert [mbean for mbean, times in answered.items() if times > 1] == []
    assert len(set(DOCUMENTED)) == len(DOCUMENTED)


@pytest.mark.parametrize("other", OTHERS, ids=lambda other: other.mbeans[0].split("=")[-1])
def test_what_is_here_under_another_name_is_there(other: tuple[tuple[str, ...], str, str]) -> None:
    _, here, note = other
    assert unknown(here) == []
    named = re.findall(r"\b(?:sparklog|kafka)_\w+", note)
    assert set(named) <= series().keys()
    for api in re.findall(r'request="(\w+)"', here):
        assert api in {each.name.title().replace("_", "") for each in Api}


def test_reasons_name_metrics_that_there_are() -> None:
    for _, why in ABSENT:
        named = re.findall(r"\b(?:sparklog|kafka)_\w+", why)
        names = {name.removesuffix(end) for name in series() for end in ("_bucket", "_sum", "")}
        assert set(named) <= names, why


def test_the_table_has_all_of_them() -> None:
    text = kafka_markdown()
    for mbean in DOCUMENTED:
        name = mbean.partition("name=")[2] or mbean.partition("type=")[2]
        assert name in text
