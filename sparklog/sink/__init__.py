"""Writing from Spark: `SegmentSink` for foreachBatch; `format("sparklog")` uses the same parts."""

from sparklog.sink.segment_sink import SegmentSink
from sparklog.sink.sessions import close

__all__ = ["SegmentSink", "close"]
