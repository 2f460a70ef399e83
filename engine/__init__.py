"""Engines that run tasks in threads or on Spark."""
