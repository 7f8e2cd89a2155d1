"""Identities of matrices of any size, proved by rewriting, with the hypotheses that were needed.

An expression is a sum of words; a word is a scalar times a product of matrix symbols of symbolic shape (n, n), (n,
d), ..., which do not commute.  A rule replaces a product standing somewhere in a word.  *Every* rule carries the
hypothesis that allows it, so what a proof assumed is what it used.  An inverse is a symbol of its own for that
reason: sympy would cancel ``P P^{-1}`` without asking whether P is invertible.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import sympy  # type: ignore[import-untyped]
from sympy import Identity, MatAdd, MatMul, MatrixSymbol

Expression = Any
"""A sympy matrix expression of symbolic shape."""
Word = tuple[Any, ...]
_STEPS = 1000


@dataclass(frozen=True)
class Rule:
    """``left`` (a product of matrix symbols) may be replaced by ``right``, under ``hypothesis``."""

    left: Word
    right: Expression
    hypothesis: str


@dataclass(frozen=True)
class ScalarRule:
    """``number * inverse`` may be replaced by 1, under ``hypothesis``."""

    number: Any
    inverse: Any
    hypothesis: str


@dataclass
class Prover:
    """Rewrites with ``rules`` and remembers the hypotheses of those it used, in order."""

    rules: tuple[Rule | ScalarRule, ...]
    used: list[str] = field(default_factory=list)

    def normal(self, expression: Expression) -> dict[Word, Any]:
        """{word: scalar} once no rule applies any more. **Raises** RuntimeError if that does not end."""
        todo = list(words(expression).items())
        done: dict[Word, Any] = defaultdict(lambda: sympy.Integer(0))
        for _ in range(_STEPS):
            if not todo:
                return {word: value for word, value in done.items() if value != 0}
            word, scalar = todo.pop()
            scalar = self._scalar(scalar)
            rewritten = self._rewritten(word)
            if rewritten is None:
                done[word] += scalar
            else:
                todo += [(w, scalar * x) for w, x in words(rewritten).items()]
        raise RuntimeError(f"rewriting does not end: {expression}")

    def difference(self, left: Expression, right: Expression) -> str:
        """What remains of ``left - right``, "" if nothing: then the identity is proved."""
        gap = self.normal(left)
        for word, value in self.normal(right).items():
            gap[word] = sympy.expand(gap.get(word, 0) - value)
        return show({word: value for word, value in gap.items() if value != 0})

    def branch(self, name: str, arguments: Iterable[Expression], shape: tuple[Any, Any]) -> MatrixSymbol:
        """The output of an arbitrary function: equal (rewritten) arguments give the same symbol, and nothing else
        is known about it.  Several arguments are the inputs of several tokens."""
        shown = "; ".join(show(self.normal(argument)) for argument in arguments)
        return MatrixSymbol(f"{name}({shown})", *shape)

    def _rewritten(self, word: Word) -> Expression | None:
        for rule in self.rules:
            if isinstance(rule, Rule):
                size = len(rule.left)
                for at in range(len(word) - size + 1):
                    if word[at : at + size] == rule.left:
                        self._note(rule.hypothesis)
                        return _product((*word[:at], rule.right, *word[at + size :]))
        return None

    def _scalar(self, value: Any) -> Any:
        for rule in self.rules:
            if isinstance(rule, ScalarRule):
                powers = value.as_powers_dict()
                times = min(powers[rule.number], powers[rule.inverse])
                if times > 0:
                    self._note(rule.hypothesis)
                    value = value / (rule.number * rule.inverse) ** times
        return value

    def _note(self, hypothesis: str) -> None:
        if hypothesis not in self.used:
            self.used.append(hypothesis)


def words(expression: Expression) -> Mapping[Word, Any]:
    """The expression as {product of symbols: scalar}; identity matrices are left out of a product with others."""
    found: dict[Word, Any] = defaultdict(lambda: sympy.Integer(0))
    expanded = expression.expand() if hasattr(expression, "expand") else expression
    for term in expanded.args if isinstance(expanded, MatAdd) else (expanded,):
        scalar, factors = term.as_coeff_mmul() if isinstance(term, MatMul) else (sympy.Integer(1), term)
        parts = factors.args if isinstance(factors, MatMul) else (factors,)
        kept = tuple(part for part in parts if not isinstance(part, Identity)) or (parts[0],)
        if not any(getattr(part, "is_ZeroMatrix", False) for part in parts):
            found[kept] += scalar
    return found


def show(sum_of_words: Mapping[Word, Any]) -> str:
    """A sum of words as text, sorted, so that equal sums have equal texts."""
    terms = []
    for word, scalar in sum_of_words.items():
        product = " ".join(str(part) for part in word)
        terms.append(product if scalar == 1 else f"({scalar}) {product}")
    return " + ".join(sorted(terms))


def _product(parts: Word) -> Expression:
    product = parts[0]
    for part in parts[1:]:
        product = product * part
    return product
