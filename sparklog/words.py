"""Words for people, the same wherever they are said."""


def counted(count: int, noun: str, plural: str = "") -> str:
    """A number and what is counted, for people: "1 record", "2 records"."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"
