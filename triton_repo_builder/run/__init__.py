"""What calls and runs a repository: client, server, smoke test, client code, demo."""
