"""``trb build`` and ``trb inspect``."""
