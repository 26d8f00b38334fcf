"""OpenAPI 3.1: the API described by what it runs on, the table of operations and its models."""
