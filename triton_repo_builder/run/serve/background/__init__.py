"""Servers that outlive the command that started them."""
