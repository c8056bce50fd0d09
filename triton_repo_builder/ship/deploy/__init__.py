"""Change which version a repository, or a running server, serves."""
