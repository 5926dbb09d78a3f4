"""The contract with clients, by noun: snaps, videos, templates, shares, webhooks, exports."""
