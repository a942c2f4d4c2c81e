"""Streaming checkpoints and state as logs: what a Spark session needs for them."""
