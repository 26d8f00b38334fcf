"""The API's process and its listeners."""
