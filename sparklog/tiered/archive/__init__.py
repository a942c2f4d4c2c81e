"""A bucket alone, read as a log.

- `archive`: shown as a log dir; `bucket`: what it holds, by its listing; `listing`: kept a while
"""
