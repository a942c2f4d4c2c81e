"""`make bench`: all benchmarks, or those named: `make bench BENCH_ARGS="engine codec spark"`.

What begins with a dash, and its values, goes to the benchmarks: `BENCH_ARGS="spark --codecs lz4"`.
"""

import importlib
import sys

NAMES = (
    "codec", "jvm", "engine", "batch", "clean", "service", "store", "tier", "diskless", "reading",
    "spark", "state", "bucket_state", "rewrite", "tuning", "kafka", "interpreted", "requests",
)  # fmt: skip

given = sys.argv[1:]
options = next((n for n, word in enumerate(given) if word.startswith("-")), len(given))
sys.argv[1:] = given[options:]
for name in given[:options] or NAMES:
    importlib.import_module(f"tests.benchmarks.bench_{name}").main()
