"""Apache Hudi's timeline: publication of slots for Hudi's readers, and conversion of external commits to slots."""
