"""Changes of a repository, each as a whole or not at all: staging, journal, and recovery after a kill."""
