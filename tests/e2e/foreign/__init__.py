"""The product with clients, origins and upstreams that nobody here wrote, as real programs on loopback."""
