"""Texts that a client or a careless operator can put into names, and that a page has to show as nothing but text."""

from __future__ import annotations

PLANTED = "planted"
"""In each text, to find it in a page; an element with this id can only come from markup that was not text."""
TEXTS = {
    "markup": f'<b id="{PLANTED}">bold</b>',
    "script": f"<script>document.body.id='{PLANTED}'</script>",
    "handler": f"<img id={PLANTED} src=x onerror=alert(1)>",
    "attribute": f'" onfocus="alert(1)" autofocus id="{PLANTED}',
    "template": f"{PLANTED} {{{{7*7}}}} ${{7*7}} {{@html 1}}",
    "link": f"javascript:alert('{PLANTED}')",
    "long": f"{PLANTED}-" + "w" * 50,
    "emoji": f"{PLANTED} 👩‍👩‍👧‍👦🏴‍☠️ é́́́́́́",
    "right to left": f"{PLANTED} \u202egnp.exe\u202c שלום مرحبا",
    "zero width": f"pla\u200bnted\u200d\u2060\ufeff {PLANTED}",
}
