"""A model as its own program (transformers) runs it: measuring a text, comparing two models, fitting one to another.

Every module here needs torch and transformers, and imports them when it is used, not when the package is.
"""
