"""Subgraphs composed behind the user's graph."""
