"""Apache Hudi's timeline: publication of hoodoo's slots for Hudi's readers, and conversion of external commits to
slots.
"""
