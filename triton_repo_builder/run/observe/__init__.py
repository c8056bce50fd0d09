"""Observe running servers: metrics pages, snapshots of one server, and rates between two of them."""
