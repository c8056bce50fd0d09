"""Deliberate faults, and whether the tests notice: ``make faults``."""
