"""The worker: claims jobs, runs them on its slots, settles them, and gives back what it cannot finish."""
