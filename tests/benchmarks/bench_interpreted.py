"""The record kernel without a C compiler beside the compiled one: CPU time of append and read.

    python -m tests.benchmarks.bench_interpreted

Each runs in a process of its own; the least CPU time of three rounds counts.
"""

import json
import subprocess
import sys
import tempfile
import time

import sparklog
from sparklog.format import kernel
from tests.benchmarks.table import Row, print_rows, sample
from tests.paths import ROOT

VALUE_BYTES = 100


def measure(records: int) -> dict[str, float]:
    """Return the microseconds of CPU per record, by step and codec."""
    rows, least = sample(records, VALUE_BYTES), dict[str, float]()
    for codec in ("uncompressed", "zstd") * 3:
        with tempfile.TemporaryDirectory() as path, sparklog.open(f"{path}/log", "rw") as log:
            log.create_topic("t", config={"compression.type": codec})
            log.append("t", rows.slice(0, 10))
            log.read("t").read_all()
            steps = {
                "append": lambda log=log: log.append("t", rows),
                "read": lambda log=log: log.read("t").read_all(),
            }
            for step, run in steps.items():
                start = time.process_time()
                run()
                took = (time.process_time() - start) / records * 1e6
                name = f"{step}, {codec}"
                least[name] = min(least.get(name, took), took)
    return least


def main() -> None:
    """Print the table."""
    figures = {}
    for name, first, records in (("compiled", "", 1_000_000), ("interpreted", INTERPRETED, 20_000)):
        code = f"{first}; from tests.benchmarks import bench_interpreted as b; b.tell({records})"
        command = [sys.executable, "-c", code.lstrip("; ")]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        found = json.loads(done.stdout)
        assert found.pop("compiled") == (name == "compiled")
        figures[name] = found
    print_rows(
        f"records of {VALUE_BYTES} B, CPU time",
        [
            Row(step, f"{slow:.2f} us", slow / figures["compiled"][step], "compiled")
            for step, slow in figures["interpreted"].items()
        ],
    )


INTERPRETED = "import tests.format.without_compiler"


def tell(records: int) -> None:
    """Print the figures of this process as JSON."""
    print(json.dumps({"compiled": kernel.COMPILED, **measure(records)}))


if __name__ == "__main__":
    main()
