"""An endpoint plan becomes files in memory."""
