"""What a picture of a screen must not have, at any width: text over the border of a card, a number that is cut, a hole
among tiles, and more than fits the window."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the group `dashboard` is optional
    from playwright.sync_api import Page

SIZES = ((320, 700), (390, 844), (720, 900), (1440, 900), (2560, 1300))
"""The narrowest phone that WCAG 1.4.10 asks for, a usual one, a laptop at 200 %, the laptop, and a wide screen."""
RULES = r"""async () => {
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))); // what a new size moves
  const found = [];
  const shortened = (node) => JSON.stringify(node.textContent.trim().slice(0, 50));
  const visible = (each) =>
    each.checkVisibility({ visibilityProperty: true, opacityProperty: true }) &&
    !each.closest('.reader, [aria-hidden=true]');
  const texts = (inside) => {
    const accepts = (node) => (node.data.trim() && visible(node.parentElement) ? 1 : 2);
    const walker = document.createTreeWalker(inside, NodeFilter.SHOW_TEXT, accepts);
    const all = [];
    while (walker.nextNode()) all.push(walker.currentNode);
    return all;
  };
  const boxes = (node) => {
    const range = document.createRange();
    range.selectNodeContents(node);
    return [...range.getClientRects()].filter((box) => box.width > 0);
  };
  /** Those around it, below `top`, that hide what lies beyond them, with how they do it. */
  const frames = (element, top) => {
    const all = [];
    for (let each = element; each && each !== top; each = each.parentElement) {
      const { overflowX, display } = getComputedStyle(each);
      if (overflowX !== 'visible' && display !== 'inline') all.push({ overflowX, box: each.getBoundingClientRect() });
    }
    return all;
  };

  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) {
    const over = (each) =>
      each.getBoundingClientRect().right > innerWidth + 1 && !frames(each.parentElement, root).length;
    const wide = [...document.querySelectorAll('main *')].find(over) ?? root;
    found.push(`${root.scrollWidth - root.clientWidth} px more than the window: ${wide.outerHTML.slice(0, 160)}`);
  }
  for (const card of [...document.querySelectorAll('.card, .figure, .tiles > div, dialog[open]')].filter(visible)) {
    const border = card.getBoundingClientRect();
    for (const node of texts(card)) {
      const around = frames(node.parentElement, card);
      const over = Math.max(0, ...boxes(node).map((box) => Math.max(
        Math.min(box.right, ...around.map((each) => each.box.right)) - border.right,
        border.left - Math.max(box.left, ...around.map((each) => each.box.left)))));
      if (over > 1) found.push(`${Math.round(over)} px over the border of a card: ${shortened(node)}`);
    }
  }
  const cut = (node) => {
    for (const { overflowX, box: frame } of frames(node.parentElement, root)) {
      if (overflowX === 'auto' || overflowX === 'scroll') return false; // the rest is one scroll away
      if (boxes(node).some((box) => box.right > frame.right + 1 || box.left < frame.left - 1)) return true;
    }
    return false;
  };
  for (const number of [...document.querySelectorAll('main .number, main time, main .right')].filter(visible))
    for (const node of texts(number).filter((each) => /\d/.test(each.data) && cut(each)))
      found.push(`cut: ${shortened(node)}`);
  for (const tiles of document.querySelectorAll('main *')) {
    const all = [...tiles.children];
    if (all.length < 2 || !all.every((each) => each.matches('.card, .figure, .tiles > div') && visible(each))) continue;
    if (!visible(tiles) || !/grid|flex/.test(getComputedStyle(tiles).display)) continue;
    const ends = all.map((each) => each.getBoundingClientRect());
    const last = ends.at(-1);
    const furthest = Math.max(...ends.map((each) => each.right));
    const hole = Math.round(furthest - last.right);
    if (hole > 2) found.push(`a hole of ${hole} px beside ${shortened(all.at(-1))}`);
  }
  return found;
}"""


def broken(page: Page) -> dict[int, list[str]]:
    """By the width of the window, what breaks a rule there. The page has its own size again afterwards."""
    before, found = page.viewport_size, {}
    session = page.context.new_cdp_session(page)
    for width, height in SIZES:
        size = {"width": width, "height": height, "deviceScaleFactor": 0, "mobile": False}
        # laid out for this size alone: a picture of it would cost more than the rules
        session.send("Emulation.setDeviceMetricsOverride", {**size, "dontSetVisibleSize": True})
        found[width] = page.evaluate(RULES)
    session.detach()
    if before:
        page.set_viewport_size(before)
    return {width: lines for width, lines in found.items() if lines}
