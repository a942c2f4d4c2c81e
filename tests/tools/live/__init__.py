"""A log in a browser."""
