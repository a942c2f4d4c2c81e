"""A number with its noun: the singular or the plural."""


def pluralize(count: int, noun: str, plural: str = "") -> str:
    """A number and what is pluralize, for people: "1 record", "2 records"."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"
