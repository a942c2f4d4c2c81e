"""A source's offsets as JSON in a Spark checkpoint: {topic: {partition: offset}}.

Written by `sparklog.source.offsets`; read by whoever looks into a checkpoint.
"""

from typing import Final

ASIDE: Final = "#"
"""Marks an entry that is no topic, as "flights#epoch"; no topic's name may have it."""
