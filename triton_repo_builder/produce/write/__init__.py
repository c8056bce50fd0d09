"""Files become a directory; nothing is lost."""
