"""The claims with their checks: every module here has a tuple ``CLAIMS``."""
