"""Simulates the queue: recorded or described jobs, run by workers under limits on boxes that need not exist. `load` has
the jobs, `world` runs them in simulated time, `forecast` sums up the result.

The simulation covers what decides about waiting: which job may begin, in which order, how long it runs when jobs share
cores, and how many processes the autoscaler keeps. It leaves out failures, retries and rate limits; a claim takes no
time.
"""
