"""Compares what a log returns with what the undamaged log returns."""

from tests.damage.model import Failed, Reading, Rows

RIGHT, FAILS, WRONG = "right", "fails", "wrong"


def word_of(found: Reading, truth: Reading) -> str:
    """Return "right", "fails" (an error names the problem) or "wrong" (other rows, no error)."""
    words = {_word(found.get(part), rows, found) for part, rows in truth.items()}
    words |= {
        WRONG for part, rows in found.items() if part not in truth and isinstance(rows, tuple)
    }
    words |= {FAILS for rows in found.values() if isinstance(rows, Failed)}
    return next((word for word in (WRONG, FAILS) if word in words), RIGHT)


def _word(found: Rows | Failed | None, truth: Rows | Failed, reading: Reading) -> str:
    if found is None:  # the log as a whole could not be read
        return FAILS if isinstance(reading.get("log"), Failed) else WRONG
    if isinstance(found, Failed):
        return FAILS
    return RIGHT if found == truth else WRONG


def changes_for_the_worse(before: Reading, after: Reading, truth: Reading) -> list[str]:
    """Return the parts that were right and no longer are, or that failed and are wrong now."""
    rank = {RIGHT: 2, FAILS: 1, WRONG: 0}
    worse = []
    for part, rows in truth.items():
        was, now = (_word(each.get(part), rows, each) for each in (before, after))
        if rank[now] < rank[was]:
            worse.append(f"{part} was {was} and is {now}")
    return worse


def appended_to(truth: Reading, added: Reading) -> Reading:
    """Return what a reader must see after an append of some values to some partitions."""
    grown = dict(truth)
    for part, values in added.items():
        rows = truth[part]
        assert isinstance(rows, tuple)
        (start, end), *records = rows
        new = [(end + n, None, value) for n, value in enumerate(values)]
        grown[part] = ((start, end + len(values)), *records, *new)
    return grown


def without_times(found: Reading, added: Reading) -> Reading:
    """Drop the time of the records that were appended, which no test knows."""
    shorter = dict(found)
    for part, values in added.items():
        rows = found.get(part)
        if isinstance(rows, tuple) and len(rows) > len(values):
            count = len(rows) - len(values)
            tail = [row[:3] if isinstance(row, tuple) else row for row in rows[count:]]
            shorter[part] = (*rows[:count], *tail)
    return shorter
