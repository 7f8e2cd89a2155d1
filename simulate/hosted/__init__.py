"""A model as its own program (transformers) runs it: measuring a text, comparing two models, fitting, converting per token.

Every module here needs torch and transformers, and imports them when it is used, not when the package is.
"""
