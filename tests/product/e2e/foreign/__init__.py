"""The product with clients, origins and upstreams of other projects, as real programs on loopback."""
