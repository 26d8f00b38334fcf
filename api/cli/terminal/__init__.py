"""Reading from and writing to a terminal or a pipe: tables, prompts, passwords, progress, completion."""
