"""What would be if: jobs as they came, or as somebody expects them, against workers, limits and boxes that need not
exist. `load` says what comes, `world` lets it happen in simulated time, `forecast` says what came of it.

It simulates what decides about waiting: who may begin, in which order, how long it runs where processors are shared,
and how many processes the autoscaler keeps. It knows no failures, no retries and no rates; claiming takes no time.
"""
