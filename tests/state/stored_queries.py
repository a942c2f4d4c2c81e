"""Stateful queries whose checkpoints are anywhere, for tests in a process of their own.

    python -m tests.state.stored_queries SETTINGS

`SETTINGS` is a JSON file with the master, Spark's settings, and the runs: operator, state store,
checkpoint, output directory, last batch and settings of the run's session. Each batch's rows go to
a file of the output directory, which a replay must write again as it was. `states`: the checkpoints
whose state is counted at the end, by the data source `statestore`, into SETTINGS.states.
"""

import json
import sys
from pathlib import Path

from tests.spark.conftest import build_session
from tests.state.driver import Outputs
from tests.state.operators import run, session


def main(settings: str) -> None:
    asked = json.loads(Path(settings).read_text())
    spark = build_session(asked["master"], **asked["conf"])
    for operator, provider, checkpoint, output, last, conf in asked["runs"]:
        own = session(spark, provider, None)
        for key, value in conf.items():
            own.conf.set(key, value)
        Path(output).mkdir(exist_ok=True)
        run(own, operator, checkpoint, Outputs(Path(output)), last)
    counts = {path: spark.read.format("statestore").load(path).count() for path in asked["states"]}
    Path(f"{settings}.states").write_text(json.dumps(counts))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
