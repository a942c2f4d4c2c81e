"""Contract tests of `sparklog.storage.view.View`. Each home has a subclass.

    class TestMine(ViewContract):
        @pytest.fixture
        def view(self) -> View: ...  # of a log with topic "t": two partitions with records
"""

import os

import pytest

from sparklog.common import TopicPartition
from sparklog.errors import OffsetOutOfRangeError, TopicReplacedError, UnknownTopicError
from sparklog.log.arrow_reads import read_partition, schema_of
from sparklog.log.partition_reader import PartitionReader, reader_of
from sparklog.log.positions import EARLIEST, LATEST, offsets_for_times, resolve
from sparklog.log.read_retry import PartitionRead
from sparklog.storage.view import View

TOPIC = "t"
FIRST, SECOND = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


class ViewContract:
    """Requirements of readers on a view, while no process writes."""

    def test_topics(self, view: View) -> None:
        info = view.topics()[TOPIC]
        assert (info.name, info.partitions) == (TOPIC, 2)
        assert sorted(info.dirs) == view.partitions(TOPIC) == [0, 1]
        assert {view.topic_id(TOPIC, p) for p in info.dirs} == {info.id}
        assert not info.offline
        assert not any(topic.startswith("__") for topic in view.topics())

    def test_a_topic_that_is_not_there(self, view: View) -> None:
        with pytest.raises(UnknownTopicError) as error:
            view.partitions("nowhere")
        assert str(error.value) == f"topic nowhere is not in {view.home}; its topics: {TOPIC}"
        with pytest.raises(UnknownTopicError) as error:
            reader_of(view, TOPIC, 2)
        assert str(error.value) == (
            f"{TOPIC}-2 is not in {view.home}; the topic's partitions here: [0, 1]"
        )
        assert view.topic_id("nowhere", 0) is None
        assert not view.bases("nowhere")

    def test_spans_do_not_change_by_looking(self, view: View) -> None:
        keys = [FIRST, SECOND]
        spans = view.spans(keys)
        assert list(spans) == keys
        assert all(0 <= start < end for start, end in spans.values())
        view.refresh()
        assert view.spans(keys) == spans
        view.forget()
        assert view.spans(keys[1:]) == {keys[1]: spans[keys[1]]}

    def test_one_look_answers_as_many_do(self, view: View) -> None:
        spans, topics = view.spans([FIRST, SECOND]), view.topics()
        with view.metadata_snapshot():
            assert view.topics() == topics
            with view.metadata_snapshot():
                assert view.spans([FIRST, SECOND]) == spans
            assert view.topic_id(TOPIC, 0) == topics[TOPIC].id
        assert view.spans([FIRST, SECOND]) == spans

    def test_nothing_is_offline(self, view: View) -> None:
        assert not view.offline()

    def test_it_stays_the_same_log(self, view: View) -> None:
        now = view.renew()
        view.refresh()
        assert view.renew() == view.incarnation == now

    def test_what_is_made_of_a_partition_is_kept(self, view: View) -> None:
        one = reader_of(view, TOPIC, 0)
        view.refresh()
        assert reader_of(view, TOPIC, 0) is one
        assert reader_of(view, TOPIC, 0, view.topic_id(TOPIC, 0)) is one
        assert reader_of(view, TOPIC, 1) is not one
        assert view.of_partition(TOPIC, 0, lambda segments: segments) is one.segments
        assert one.segments.topic_id == view.topic_id(TOPIC, 0)
        another = view.of_partition(TOPIC, 0, PartitionReader, "AAAAAAAAAAAAAAAAAAAAAA")
        assert another is not one

    def test_local_files_are_its_segments(self, view: View) -> None:
        for key, (start, end) in view.spans([FIRST, SECOND]).items():
            files = view.local_files(key)
            metadata = view.of_partition(*key, lambda segments: segments.metadata())
            local = [each.base for each in metadata if each.local]
            assert list(files.bases if files else ()) == local
            if files is None:
                continue
            assert files.identities
            assert os.path.dirname(metadata[-1].where) == files.directory
            for at in range(start, end):
                first = [base for base in local if base <= at][-1:]
                assert list(files.holding(at, at + 1)) == first
                assert files.following(at) == next((b for b in local if b >= at), None)
            assert list(files.holding(local[0], end)) == [b for b in local if b < end]

    def test_every_record_is_read(self, view: View) -> None:
        view.set_following()
        for (topic, p), (start, end) in view.spans([FIRST, SECOND]).items():
            found = read_partition(
                PartitionRead(view, topic, p, start, end), schema_of(["offset"])
            )
            assert [o for rows in found for o in rows["offset"].to_pylist()] == [*range(start, end)]

    def test_times_are_found(self, view: View) -> None:
        spans = view.spans([FIRST])
        start, end = spans[FIRST]
        for when, offset in ((-2, start), (-1, end), (0, start), (2**60, None)):
            found = offsets_for_times(view, TOPIC, {0: when}, spans, isolation="read_uncommitted")
            assert found == {0: offset}

    def test_a_plan_for_another_topic(self, view: View) -> None:
        start, end = view.spans([FIRST])[FIRST]
        read = PartitionRead(view, TOPIC, 0, start, end, topic_id="A" * 22)
        found = read_partition(read, schema_of(["offset"]))
        with pytest.raises(TopicReplacedError):
            list(found)

    def test_offsets_out_of_range(self, view: View) -> None:
        spans = view.spans([SECOND])
        start, end = spans[SECOND]
        given = {"name": "start", "isolation": "read_uncommitted"}
        for at in (start, end):
            assert resolve(view, TOPIC, [1], {1: at}, spans, **given) == {1: at}
        for at in (start - 1, end + 1):
            if at not in (EARLIEST, LATEST):
                with pytest.raises(OffsetOutOfRangeError):
                    resolve(view, TOPIC, [1], {1: at}, spans, **given)
