"""What every server here listens by; no protocol: Kafka's endpoint and the pages share it.

- `addresses`: HOST:PORT as people write it, what it resolves to, who can reach it
- `tls`: certificates and keys in PEM files, read again when they are renewed
"""
