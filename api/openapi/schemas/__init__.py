"""The models of responses, one module for each kind of resource, and references between schemas."""
