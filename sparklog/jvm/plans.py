"""The version of the plans that Python makes and the JVM executes, known to both sides."""

from typing import Final

PLAN_VERSION: Final = 1
"""Version of the JSON of all plans and of the answers. Increment it, here and in
scala/Version.scala, for a change that an older version of the other side would misread."""
