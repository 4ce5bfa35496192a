"""Jobs on Spark for those who operate a cluster: each a function from frame to frame, and a thin job around it."""
