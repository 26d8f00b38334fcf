"""The operator's settings: `settings` loads them, `runtime` are those that change while the product runs."""
