"""The product with clients, origins and parents that nobody here wrote, as real programs on loopback."""
