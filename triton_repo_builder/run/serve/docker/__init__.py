"""The Docker engine: the same repository in a container, through the ``docker`` SDK."""
