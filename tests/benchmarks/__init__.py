"""Benchmarks: `make bench`. Everything a ratio compares runs in the same process, same minute."""
