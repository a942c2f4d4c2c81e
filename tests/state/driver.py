"""A stateful query in a process of its own, to be killed, or started twice.

driver.py OPERATOR PROVIDER CHECKPOINT OUTPUT UNTIL

Each batch's rows go to OUTPUT/<batch>.json, which a replay must write again as it was. It ends when
batch UNTIL is committed.
"""

import json
import os
import sys
from pathlib import Path

from sparklog.session.setup import spark_conf
from tests.spark.conftest import build_session
from tests.state.operators import PROVIDERS, run


class Outputs(dict):  # type: ignore[type-arg]
    """Batches' rows, written as they are set; they must agree with what is there."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory

    def setdefault(self, batch: int, rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
        path = self._directory / f"{batch}.json"
        text = json.dumps(rows, default=str)
        if path.exists():
            assert path.read_text() == text, f"batch {batch} was computed anew, and differs"
        else:
            part = path.with_suffix(".part")
            part.write_text(text)
            os.replace(part, path)
        return rows


def main() -> None:
    operator, provider, checkpoint, output, until = sys.argv[1:]
    conf = {**spark_conf(), **PROVIDERS[provider], "spark.sql.shuffle.partitions": "2"}
    spark = build_session(**conf)
    run(spark, operator, Path(checkpoint), Outputs(Path(output)), int(until))
    spark.stop()


if __name__ == "__main__":
    main()
