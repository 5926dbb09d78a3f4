"""The roles of the bench's processes, one module each. A process reads its task, says when it is ready, and reports."""
