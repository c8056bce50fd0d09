"""The live view of ``trb top``."""
