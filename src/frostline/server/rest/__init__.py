"""The catalog server: the Iceberg REST catalog protocol over the built-in catalog. docs/design/catalog-server.md."""
