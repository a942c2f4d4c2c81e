"""A log whose home is an object store."""
