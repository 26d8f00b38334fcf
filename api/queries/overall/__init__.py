"""How everything is: health, what needs attention, and the first screen."""
