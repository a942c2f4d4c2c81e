"""Kafka's storage engine as a library inside Spark."""

__version__ = "0.1.0"
