"""Commands that ask a running product over its API, one module for each resource."""
