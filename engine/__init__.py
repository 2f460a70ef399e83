"""Engines that run tasks in threads of this process or on Spark."""
