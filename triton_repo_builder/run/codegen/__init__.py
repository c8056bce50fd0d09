"""Code for users of an endpoint: a typed client and calls to copy."""
