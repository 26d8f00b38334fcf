"""What an operator does without the API: the first start, commands on a stopped product's data, an upgrade, a probe."""
