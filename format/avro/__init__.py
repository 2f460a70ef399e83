"""Avro codec: conversion of Arrow columns to Avro records and back, without a Python object per row."""
