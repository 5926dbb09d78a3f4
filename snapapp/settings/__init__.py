"""What can be set from outside: `table` names every setting, `types` reads and checks the values."""
