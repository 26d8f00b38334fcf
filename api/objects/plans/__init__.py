"""Plans: rules that accounts inherit. `kind` declares them, `plans` has what is asked of them and of their users."""
