"""Measures one candidate: starts a server with its settings and loads it.

In: a candidate and a model. Out: a trial, which has the figures for each number of users.
"""
