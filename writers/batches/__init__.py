"""Preparation of batches: conversion of rows and search for invalid rows."""
