"""What the bench's processes do, a module a role. Each is told its task, says when it is ready, and reports."""
