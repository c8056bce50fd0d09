"""How reliability is measured, and the helper that writes docs/reliability.md."""
