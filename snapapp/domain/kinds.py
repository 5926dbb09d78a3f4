"""The names of the product's job kinds. Nothing else stands here, so a worker that only declares them stays small."""

SNAP, PROBE, PREVIEW, STILL, EXTRACT = "snap.process", "video.probe", "video.preview", "video.still", "frames.extract"
FORGET, WEBHOOK, SWEEP = "media.forget", "snap.webhook", "storage.sweep"
