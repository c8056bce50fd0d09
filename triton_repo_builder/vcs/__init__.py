"""Commit a repository to git, with its provenance."""
