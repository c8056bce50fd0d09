"""The rules of ``trb check``, one topic a module."""
