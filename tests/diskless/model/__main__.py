"""See the package: seeds without end, or the first seed that shows that a rule is needed."""

import argparse
import logging
import sys
import time
from collections import Counter

from tests.diskless.model.mutations import BY_RULE, Mutation, first_seed
from tests.diskless.model.oracle import Violation
from tests.diskless.model.places import table
from tests.diskless.model.simulation import simulate
from tests.diskless.model.switching import PLAYED

RULES = BY_RULE | {mutation.rule: mutation for mutation in PLAYED}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.diskless.model")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--rule", default="", choices=["", "all", *RULES])
    parser.add_argument("--places", action="store_true", help="print where each rule is")
    options = parser.parse_args()
    if options.places:
        print(table())
        return 0
    logging.disable(logging.WARNING)
    seeds = range(options.first, options.first + options.seeds)
    if not options.rule:
        return _protocol(seeds)
    rules = RULES.values() if options.rule == "all" else [RULES[options.rule]]
    return sum(not _mutation(rule, seeds) for rule in rules)


def _protocol(seeds: range) -> int:
    began, total, wrong = time.monotonic(), Counter[str](), 0
    for seed in seeds:
        try:
            total += simulate(seed)
        except Violation as violation:
            print(violation, flush=True)
            wrong += 1
    took = time.monotonic() - began
    print(f"{len(seeds)} seeds in {took:.0f} s, {wrong} violations; each on average:")
    print({what: round(count / len(seeds), 2) for what, count in sorted(total.items())})
    return min(wrong, 1)


def _mutation(mutation: Mutation, seeds: range) -> bool:
    began = time.monotonic()
    found = first_seed(mutation, seeds)
    took = time.monotonic() - began
    if found is None:
        print(f"{mutation.rule:12} NOT SEEN in {len(seeds)} seeds, {took:.1f} s", flush=True)
        return False
    violation = found[1]
    words = str(violation).splitlines()[0]
    print(f"{mutation.rule:12} {took:5.1f} s  {words}", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
