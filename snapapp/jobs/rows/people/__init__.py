"""What people look at and change: `lists` (jobs by filter), `views` (one job), `overviews` (queues and workers),
`failures` (dead letters by error), `relatives` (parents and children), `changes` (news for live pages), `history`,
`bulk` (one step for many jobs), and `audit` (who did what).
"""
