"""The nouns of the product and their rules; the domain knows neither HTTP nor the queue. Read `marking` first (the use
cases of a snap), then what it uses: `transactions`, `snaps`, `videos`, `templates`, `sharing` (public links) and
`webhooks` (calls to other services). `finding` lists and searches, `tables` has all columns, `rules` what needs no
database."""
