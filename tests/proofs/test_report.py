"""The report: self-contained, complete, right; opened in headless Chromium where there is one."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import chromium
import pytest

import streamgauge
from streamgauge.proofs import report
from streamgauge.proofs.formulas import Formulas
from streamgauge.proofs.ledger import claims
from streamgauge.proofs.ledger.certificates import MAKERS
from streamgauge.proofs.ledger.run import Setting, run_ledger, select
from streamgauge.proofs.report_pictures import PICTURES, barcode_picture, tail_picture
from streamgauge.theory.errors import InputError


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of some claims of every document, without torch, with a hostile text put in."""
    folder = tmp_path_factory.mktemp("report")
    chosen = select(
        ["G04", "G20", "G27", "G30", "G37", "E06", "E22", "E34", "N30", "T04", "TH1", "TH2", "TH3", "TH4", "NET1"]
    )
    document = run_ledger(chosen, Setting(without=frozenset({"torch"}))).document()
    document["claims"][0]["note"] = '</script><b>5 < 6 & "7"</b> $ and one dollar'
    document["claims"][0]["witness"] = {"a": 1.0, "long": "x" * 5000}
    report.write_report(document, folder)
    return folder


class Page(HTMLParser):
    """Tags in balance, ids, links, texts."""

    VOID = frozenset({"meta", "link", "wbr", "br", "input", "path", "use", "line", "circle", "polyline"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.open: list[str] = []
        self.classes: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids += [v for k, v in attrs if k == "id" and v]
        self.links += [v for k, v in attrs if k in ("href", "src") and v]
        self.classes += (given.get("class") or "").split()
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [v for k, v in attrs if k == "id" and v]
        self.links += [v for k, v in attrs if k == "href" and v]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> out of place"


def test_the_page_is_well_formed_and_needs_nothing(written: Path) -> None:
    text = (written / "report.html").read_text("utf-8")
    page = Page(text)
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    for link in page.links:
        if link.startswith("#"):
            assert link[1:] in page.ids, link
        elif not link.startswith("data:"):
            assert (written / link).is_file(), link
    assert not re.search(r"https?://|@import|url\(", text)
    assert "default-src 'none'" in text
    assert "@@" not in text


def test_every_claim_is_there_with_all_that_belongs_to_it(written: Path) -> None:
    text = (written / "report.html").read_text("utf-8")
    document = json.loads((written / "ledger.json").read_text("utf-8"))
    for claim in document["claims"]:
        (start,) = [m.start() for m in re.finditer(f'<article[^>]* id="{claim["id"]}"', text)]
        article = text[start : text.index("</article>", start)]
        plain = re.sub(r"<[^>]+>", "", re.sub(r"<svg.*?</svg>", "", article, flags=re.S))
        assert claim["status"] in plain
        assert ("Hypotheses" in plain) == bool(claim["hypotheses"])
        if claim["check"] and claim["status"] != "not run":
            assert "Control" in plain
            assert claim["check"]["control"]["name"].split("$")[0][:20] in plain.replace("&#39;", "'").replace(
                "&amp;", "&"
            )
        if claim["repair"] and claim["status"] != "holds":
            assert "Holds if" in plain or "What does hold" in plain
    assert 'aria-label="A_l P_l = P_{l+1} E_l"' in text or "aria-label=" in text
    assert text.count("<figure>") == sum(c["id"] in PICTURES for c in document["claims"])


def test_texts_are_escaped_and_long_ones_cut(written: Path) -> None:
    text = (written / "report.html").read_text("utf-8")
    assert "&lt;/script&gt;&lt;b&gt;5 &lt; 6 &amp; &#34;7&#34;&lt;/b&gt; $ and one dollar" in text.replace(
        "&quot;", "&#34;"
    )
    assert "x" * 5000 not in text
    assert text.count("<script>") == 1


def test_certificates_pass_the_checker(written: Path) -> None:
    found = sorted((written / "certificates").glob("*.json"))
    assert {path.stem for path in found} >= {"identity", "binary", "norm", "graded"}
    for path in found:
        assert streamgauge.check(path), path.name
    assert set(MAKERS) <= set(claims())


def test_a_file_in_the_way_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        report.write_report({"claims": []}, tmp_path / "file" / "below")


VALUES: dict[str, tuple[Any, str]] = {
    "float": (1 / 3, "0.333333"),
    "fraction": ("1/3", "1/3"),
    "none": (None, "none"),
    "bool": (True, "yes"),
    "list": ([1, 2.5], "1, 2.5"),
    "pairs": ([[1, 2], [3]], "(1, 2), (3)"),
    "matrix": ([["1/2", 0], [0, 1]], "<table"),
    "wide matrix": ([[0] * 9], "(0, 0, 0, 0, 0, 0, 0, 0, 0)"),
    "object": ({"a": [1]}, '<dl class="inner"><div><dt>a</dt><dd>1</dd></div></dl>'),
    "markup": ("<b>", "&lt;b&gt;"),
}


@pytest.mark.parametrize(("value", "shown"), VALUES.values(), ids=VALUES)
def test_values(value: Any, shown: str) -> None:
    found = str(report.value_html(value))
    assert found == shown or (shown.startswith("<table") and shown in found)


@pytest.mark.parametrize(
    ("value", "shown"), [(0.00041, "0.4 ms"), (0.087, "87 ms"), (3.14, "3.1 s"), (150, "2.5 min")]
)
def test_seconds(value: float, shown: str) -> None:
    assert report.seconds(value) == shown


def test_every_formula_of_the_ledger_can_be_drawn() -> None:
    formulas = Formulas()
    for claim in claims().values():
        checks = [c for c in (claim.literal, claim.repair.check if claim.repair else None) if c]
        texts = [claim.statement, *claim.hypotheses, claim.note, claim.source or "", *(c.text for c in checks)]
        texts += [claim.repair.statement, claim.repair.hypothesis or ""] if claim.repair else []
        for text in texts:
            assert 'class="latex"' not in formulas.text(text), f"{claim.id}: {text}"
    used = set(re.findall(r'href="#(g\d+)"', "".join(formulas._done.values())))
    assert used == set(re.findall(r'id="(g\d+)"', formulas.definitions))


def test_wide_formulas_are_cut_at_relations_only_outside_braces() -> None:
    formulas = Formulas()
    latex = r"\sum_{i=1}^{n} a_i x_i + b_i y_i + c_i z_i + d_i u_i = f(x = y) \leq \frac{a = b}{c} + g + h"
    pieces = formulas._pieces(latex)
    assert "".join(pieces) == latex
    assert [piece[:3] for piece in pieces[1:]] == ["= f", r"\le"]
    assert formulas.formula(latex).count("<svg") == 3
    assert formulas.formula(r"\nonsense x") == r'<code class="latex">\nonsense x</code>'
    assert formulas._pieces("a = b") == ["a = b"]


def test_pictures_say_the_numbers_of_the_ledger() -> None:
    """Rank formula for the bars; the sampled constants of the tail."""
    words = re.findall(r"\[(\d), (\d)\]", barcode_picture().alternative)
    assert len(words) == 4 + 3 * 1 + 3, "n + sum(n - rank A): three pairs averaged and one average of four"
    assert sum(d == "8" for _, d in words) == 4, "four bars are alive at the end"
    for number in ("0.9079", "0.0006596", "2.175e-11"):
        assert number in tail_picture().svg


def test_two_reports_of_one_run_are_equal(written: Path) -> None:
    document = json.loads((written / "ledger.json").read_text("utf-8"))
    assert report.render(document) == report.render(document)


needs_chromium = pytest.mark.skipif(chromium.executable() is None, reason="needs chromium")


@needs_chromium
def test_opened_in_a_browser_at_both_widths(written: Path) -> None:
    for seen in chromium.look(written / "report.html"):
        assert seen.ok, seen


@needs_chromium
def test_the_browser_check_notices_what_it_must(tmp_path: Path) -> None:
    """The control: a page that is too wide, throws and asks for a picture from a network."""
    bad = (
        '<body><div class="w" style="width:3000px">x</div><img src="http://localhost:9/x.png"><script>boom()</script>'
    )
    (tmp_path / "bad.html").write_text(f'<meta name="viewport" content="width=device-width">{bad}')
    seen = chromium.look(tmp_path / "bad.html")[0]
    assert not seen.ok
    assert seen.scrolls
    assert any("div.w" in name for name in seen.overflowing)
    assert any("boom" in line for line in seen.console)
    assert seen.requests == ("http://localhost:9/x.png",)


@needs_chromium
def test_filters_work(written: Path) -> None:
    shown = "[...document.querySelectorAll('.claim:not([hidden])')].map(c => c.id)"
    with chromium.browser() as it:
        it.open((written / "report.html").resolve().as_uri(), width=1280)
        everything = it.evaluate(shown)
        assert len(everything) == 15
        it.evaluate("document.querySelector('[data-filter=status][data-value=refuted]').click()")
        assert it.evaluate(shown) == ["G37", "E06", "T04"]
        it.evaluate("document.querySelector('[data-filter=document][data-value=E]').click()")
        assert it.evaluate(shown) == ["E06"]
        assert it.evaluate("document.getElementById('shown').textContent") == "1 of 15 claims"
        it.evaluate("document.getElementById('clear').click()")
        assert it.evaluate(shown) == everything
        it.evaluate("const s = document.getElementById('search'); s.value = 'permutation uniform'; 0")
        it.evaluate("document.getElementById('search').dispatchEvent(new Event('input'))")
        assert it.evaluate(shown) == ["E22"], "every word, anywhere in the claim"
        it.evaluate("location.hash = '#TH3'")
        it.evaluate("new Promise(done => setTimeout(done, 200))")
        assert it.evaluate("document.querySelector('#TH3 details').open")
        assert it.evaluate(shown) == everything, "a link to a hidden claim shows it"
        assert it.console == []
