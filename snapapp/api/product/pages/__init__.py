"""Pages that the server makes, so that they work without scripts. `language` has the words, `page` the tenant and the
headers, `moment` how a moment is shown. The pages are `sign_in`, `people` (who may sign in), `gallery` (finds moments),
`operator` (compares two moments, and shows all of one subject) and `public_page` (the page of a public link)."""
