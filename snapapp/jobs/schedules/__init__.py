"""Jobs that come by themselves: `declared` (what there is), `slots` (when, pure), `ledger` (what became of each slot),
`scheduler` (who looks) and `views` (what people see)."""
