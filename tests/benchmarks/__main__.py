"""`make bench`: all benchmarks, or those named: `make bench BENCH_ARGS="engine codec spark"`."""

import importlib
import sys

NAMES = ("codec", "engine", "batch", "clean", "spark")

for name in sys.argv[1:] or NAMES:
    importlib.import_module(f"tests.benchmarks.bench_{name}").main()
