"""Apache Hudi's timeline: what it is told of our slots, and what it says of other engines' commits."""
