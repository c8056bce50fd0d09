"""Subgraphs appended to the user's graph."""
