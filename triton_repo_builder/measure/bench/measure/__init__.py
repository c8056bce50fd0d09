"""Measurements while a load runs."""
