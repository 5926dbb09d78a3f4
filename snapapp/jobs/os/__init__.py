"""What needs the operating system: signals, exits, memory, whether a process lives, and a file that survives a kill."""
