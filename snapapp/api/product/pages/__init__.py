"""Pages that the server makes, so that they work without scripts: `language` says in which words, `page` for whom and
with which headers, `moment` what is shown of each; at `sign_in` one says who one is, `gallery` finds moments,
`operator` has two of them side by side and everything of one subject."""
