"""What only the operating system can tell or do: signals, exits, memory, who lives, and what outlives a kill."""
