"""The plans that Python makes and the JVM carries out: their version, which both sides know."""

from typing import Final

PLAN_VERSION: Final = 1
"""Of the JSON of all plans, and of what is handed back. A change that the other side of an earlier
version would misread makes it one more, here and in scala/Version.scala."""
