"""The cloud behind a narrow port; `tpu_api` is the only module that imports Google's client."""
