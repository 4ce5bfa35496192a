"""The jobs of `eruca pipeline`: each is a function from frame to frame with a thin job around it.

`archive`, `audit`, `dlq`, `fsck`, `query`, `rebuild`, `replay` and `stats` are the jobs. `inputs` opens the messages
they read, `tracking` shows progress, `summary` is what they return; `traces`, `charts` and `directories` are shared.
"""
