"""Write files to a directory without losing any."""
