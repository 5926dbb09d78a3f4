"""The fleet under test: real supervisors, real workers, real kills.

`python -m tests.labs fleet --jobs 100000` is the lab: three pools and eight workers under fire. `python -m tests.labs
simulate` holds the autoscaler against recorded loads and draws what it did.
"""
