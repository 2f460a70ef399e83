"""Apache Hudi's timeline: publication of hoodoo's slots, and reading of other engines' commits."""
