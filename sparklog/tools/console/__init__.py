"""Records out of a log as text, and into it from files: consume and produce."""
