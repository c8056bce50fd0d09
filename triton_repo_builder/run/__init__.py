"""Callers and runners of a repository: client, server, smoke test, client code, demo."""
