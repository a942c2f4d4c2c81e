"""A source's offsets as JSON in a Spark checkpoint: {topic: {partition: offset}}.

`sparklog.source.offsets` writes them; tools that inspect checkpoints read them.
"""

from typing import Final

ASIDE: Final = "#"
"""Marks an entry that is not a topic, such as "flights#epoch". Topic names cannot contain it."""
