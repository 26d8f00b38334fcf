"""Who is asking, and what they may do: credentials, tokens, permissions, attempts and rates."""
