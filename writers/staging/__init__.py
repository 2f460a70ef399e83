"""Writes of Spark DataFrames through staged Arrow files."""
