"""Addresses and certificates, which every server listens by."""
