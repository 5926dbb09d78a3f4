"""The product's routes: a router for each noun of /v2, /v1/video-frames, and the pages that the server makes."""
