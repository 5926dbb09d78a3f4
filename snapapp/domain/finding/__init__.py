"""Lists of what the product knows: `paging` (any list, page by page), `search` (the snaps that fit) and `subject_index`
(the rows by which a search finds a snap)."""
