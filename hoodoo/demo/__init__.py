"""`hoodoo demo`: the job that hoodoo is for, on a year of real flights."""
