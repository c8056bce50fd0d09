"""What is replaced in a repository, all of it or nothing: staged, swapped, and recovered after a kill."""
