from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmlfm.escaping import json_text, markdown_text, terminal_text

# ESC, CSI as one character, a carriage return, a bell, an override and an isolate of the writing direction, half a pair.
ORDERS = "\x1b\x9b\r\x07\x08\x7f\u202e\u2066\u2028\udcff"


def test_orders_to_a_terminal_are_written_out() -> None:
    assert terminal_text("\x1b[31mred\x9b2J\r\u202egpj.exe") == r"\x1b[31mred\x9b2J\r\u202egpj.exe"
    assert terminal_text("a\nb\tc") == "a\\nb\tc"
    assert terminal_text("a\n\x1bb", lines=True) == "a\n\\x1bb"
    assert not set(terminal_text(ORDERS)) & set(ORDERS)


@pytest.mark.parametrize("text", ["", "plain", "日本語 é", "👩\u200d👧 [b]not bold[/b]", "שלום\u200f", "C:\\new"])
def test_ordinary_text_stays(text: str) -> None:
    assert terminal_text(text) == text


@given(st.text() | st.text(ORDERS))
def test_a_json_document_keeps_its_value_and_steers_nothing(text: str) -> None:
    document = json_text(json.dumps({text: [text]}, ensure_ascii=False))
    assert json.loads(document) == {text: [text]}
    assert not set(document) & set(ORDERS)


def test_markdown_gets_neither_html_nor_links_nor_cells() -> None:
    assert markdown_text("<script>x</script> & <b>") == "&lt;script&gt;x&lt;/script&gt; &amp; &lt;b&gt;"
    assert markdown_text("a | b") == r"a \| b"
    assert markdown_text("![x](http://y) `z` *e* \\") == r"!\[x\](http://y) \`z\` \*e\* \\"
    assert markdown_text("first\n\n# second\x1b") == r"first  # second\\x1b"
    assert markdown_text("cold_start_rate=0.1, it's") == "cold_start_rate=0.1, it's"
