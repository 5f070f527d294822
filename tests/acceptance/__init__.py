"""The full matrices that `make acceptance` runs: each part is a module with a `main`, resumable, `--smallest` for CI."""
