"""Certificates of claims: files that ``streamgauge check`` (the standard-library checker) accepts on their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from pathlib import Path

from streamgauge.proofs.certificate import Certificate, certificate, rank_certificate
from streamgauge.proofs.counterexample import algebra, boxed
from streamgauge.theory.chain import Chain
from streamgauge.theory.form import NormGate
from streamgauge.theory.normal_form import normal_form

_HALF, _TENTH = Fraction(1, 2), Fraction(1, 10)
_SWAP, _AVERAGE = [[0, 1], [1, 0]], [[_HALF, _HALF], [_HALF, _HALF]]
_MILD = [[1 - _TENTH, _TENTH], [_TENTH, 1 - _TENTH]]


def _chain(*mixers: list[list[Fraction]] | list[list[int]]) -> Chain:
    sites = len(mixers)
    return Chain(list(mixers), [[1, Fraction(1, 3)]] * sites, [[1, _HALF]] * sites, entry=[1, 1], readout=[1, 1])


def _identity() -> Certificate:
    return certificate(normal_form(_chain(_SWAP, _MILD, _MILD), "identity"))


def _binary() -> Certificate:
    return certificate(normal_form(_chain(_SWAP, _AVERAGE, _SWAP), "binary"))


def _graded() -> Certificate:
    return certificate(normal_form(_chain(_MILD, _AVERAGE, _MILD).floating(), "graded"))


def _norm() -> Certificate:
    return certificate(normal_form(_chain(_SWAP, _AVERAGE, _SWAP), "binary", norm=NormGate()))


def _rank() -> Certificate:
    return rank_certificate(_AVERAGE)


def _seed_system() -> Certificate:
    return algebra.seed().certificate()


def _embedded_system() -> Certificate:
    return algebra.embedded().certificate()


def _boxed_system() -> Certificate:
    return boxed.general_system().certificate()


MAKERS: Mapping[str, Mapping[str, Callable[[], Certificate]]] = {
    "G04": {"identity": _identity},
    "G11": {"rank": _rank},
    "G14": {"rank": _rank},
    "G23": {"nullstellensatz": _seed_system},
    "G24": {"nullstellensatz": _seed_system},
    "G28": {"binary": _binary},
    "G29": {"binary": _binary},
    "G46": {"norm": _norm},
    "TH1": {"identity": _identity},
    "TH2": {"binary": _binary, "graded": _graded},
    "TH3": {"norm": _norm},
    "TH6": {"binary": _binary},
    "CE06": {"nullstellensatz": _seed_system},
    "CE09": {"nullstellensatz-embedding": _embedded_system},
    "CE14": {"nullstellensatz-boxed": _boxed_system},
}
"""Claim id to {name: what makes the certificate}."""


def write_certificates(ids: Iterable[str], folder: Path) -> dict[str, list[Path]]:
    """Write the certificates of those claims, each kind once; returns the paths by claim id."""
    found: dict[str, list[Path]] = {}
    written: dict[Callable[[], Certificate], Path] = {}
    for claim in ids:
        for name, make in MAKERS.get(claim, {}).items():
            if make not in written:
                written[make] = make().save(folder / f"{name}.json", force=True)
            found.setdefault(claim, []).append(written[make])
    return found
