"""Every statement on the queue's tables, by what it is for. Each takes the caller's connection and never commits."""
