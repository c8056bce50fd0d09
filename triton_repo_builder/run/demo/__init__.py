"""``trb demo``, and the real models it and the tests use."""
