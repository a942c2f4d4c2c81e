"""Topics are described while they come and go."""

from pathlib import Path

import pytest

import sparklog
from sparklog.errors import UnknownTopicError
from sparklog.tools import topics
from sparklog.tools.topics import describe_topics


def test_a_topic_that_goes_meanwhile_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "PATIENCE_MS", 0)
    with sparklog.open(tmp_path / "log", "rw") as log:
        for name in ("a", "b", "c"):
            log.create_topic(name, 2)
        with sparklog.open(log.path) as reader:
            known = list(reader.topics().values())
            log.delete_topic("b")
            log.delete_topic("c")
            log.create_topic("c", 2)
            assert [found.topic for found in describe_topics(reader, known)] == ["a"]
            with pytest.raises(UnknownTopicError, match="b is not in"):
                reader.topic("b")
