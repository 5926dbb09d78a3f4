"""What every request passes through, before and after the route that answers it."""
