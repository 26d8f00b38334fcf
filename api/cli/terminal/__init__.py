"""Input from and output to a terminal or a pipe: tables, prompts, passwords, progress, completion."""
