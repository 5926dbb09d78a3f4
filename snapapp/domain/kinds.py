"""The names of the product's job kinds. This module imports nothing, so a worker that only declares the kinds stays
small."""

SNAP, PROBE, PREVIEW, STILL, EXTRACT = "snap.process", "video.probe", "video.preview", "video.still", "frames.extract"
FORGET, WEBHOOK, SWEEP = "media.forget", "snap.webhook", "storage.sweep"
