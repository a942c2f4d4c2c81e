"""Addresses and TLS of all servers: the Kafka endpoint and the HTTP pages.

- `addresses`: parses and resolves HOST:PORT, and checks who can connect
- `tls`: certificates and keys in PEM files, reloaded when they change
"""
