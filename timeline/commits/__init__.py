"""How a slot comes to be: one attempt, its conflicts, and how often it is tried again."""
