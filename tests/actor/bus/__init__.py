"""The bus over real sockets."""
