"""Format a count with a noun in the singular or plural."""


def pluralize(count: int, noun: str, plural: str = "") -> str:
    """Format a count with a noun: "1 record", "2 records"."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"
