"""Engines that run tasks: in this process or on Spark."""
