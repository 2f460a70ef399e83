"""Avro codec: conversion of Arrow columns to Avro records and back."""
