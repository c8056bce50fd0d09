"""The APIs of OpenAI, Cohere, TEI and Hugging Face in front of any tritonserver.

``app`` takes a request in, ``routes`` has a module for each owner of a schema, ``catalogue`` finds the
endpoint that is meant, ``triton`` asks it over gRPC. No model is run here: every answer is an endpoint's.
"""
