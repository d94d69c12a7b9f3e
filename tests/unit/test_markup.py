"""HTML from pieces: what is text stays text."""

import re

from common.python.report.markup import bullets, escaped, folded, table, tag


def test_text_and_attributes_are_escaped_and_markup_is_not() -> None:
    made = tag("p", 'a < b & "c"', tag("b", "'x'"), class_='"><script>')
    assert made.text == '<p class="&quot;&gt;&lt;script&gt;">a &lt; b &amp; &quot;c&quot;<b>&#x27;x&#x27;</b></p>'


def test_lines_and_tabs_are_kept_and_what_a_terminal_would_obey_is_not() -> None:
    assert escaped("a\n\tb\x00\x1b[2J\u202ec\ufffe") == "a\n    b  [2J c "


def test_every_piece_escapes_what_it_holds() -> None:
    for made in (table(("<i>",), [["<i>"]]), bullets(["<i>"]), folded("<i>", "<i>")):
        assert "<i>" not in made.text
        assert "&lt;i&gt;" in made.text


def test_a_short_line_of_a_table_is_filled_up_and_sentences_may_break() -> None:
    cells = re.findall(r"<td[^>]*>", table(("a", "b"), [["x"], ["y", "z" * 40]]).text)
    assert cells == ["<td>", "<td>", "<td>", '<td class="words">']
