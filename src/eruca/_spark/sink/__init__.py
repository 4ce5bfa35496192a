"""Topics as a Spark sink: `options` reads the options, `encoding` packs rows into requests, `writer` sends them."""
