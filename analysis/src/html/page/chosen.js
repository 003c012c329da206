// What was chosen, beside every view: its figures, findings, source, stacks, callers and callees.

const BELOW = 12; // Callers or callees of each, until the reader asks for all.
const OPEN = 16; // Levels of a path without a branch, which is one thing to read.

const placeText = (frame) => frame.place + (frame.inlined ? "  [inlined]" : "");

// A tree of functions from the chosen frame, outwards or inwards: { weight, below: by name }.
function callsFrom(outwards) {
  const root = { weight: 0, below: new Map() };
  for (const { stack, site, weight } of weighed(state.measure)) {
    const place = placeOf(state.chosen, stack, site);
    if (place < 0) continue;
    const path = outwards ? stack.slice(0, place).reverse() : stack.slice(place + 1);
    let at = root;
    root.weight += weight;
    for (const frame of path) {
      const key = frame.name + "\n" + frame.place;
      if (!at.below.has(key)) at.below.set(key, { frame, weight: 0, below: new Map() });
      at = at.below.get(key);
      at.weight += weight;
    }
  }
  return root;
}

function drawCalls(parent, node, whole, all, levels = OPEN) {
  const below = [...node.below.values()].sort((a, b) => b.weight - a.weight);
  for (const next of below.slice(0, all ? Infinity : BELOW)) {
    const isEnd = next.below.size === 0;
    const box = make(parent, isEnd ? "div" : "details", "call");
    const line = isEnd ? box : make(box, "summary");
    make(line, "span", "share", percent(next.weight, whole));
    make(line, "span", "name", next.frame.name).title = figure(next.weight);
    lineAt(line, placeText(next.frame));
    if (isEnd) continue;
    const open = () => box.childElementCount > 1 || drawCalls(box, next, whole, false, levels - 1);
    box.addEventListener("toggle", open);
    if (below.length === 1 && levels > 0) {
      open();
      box.open = true;
    }
  }
  if (below.length > BELOW && !all) {
    const more = button(parent, "boxed", counted(below.length - BELOW, "other"), () => {
      more.remove();
      drawCalls(parent, { below: new Map(below.slice(BELOW).map((next, index) => [index, next])) }, whole, true);
    });
  }
}

function drawStack(parent, stack, site) {
  const list = make(parent, "ol", "frames");
  for (const frame of [...stack].reverse()) {
    const isIt = site && isAt(frame, site.frame);
    const line = make(list, "li", isIt ? "at" : "");
    button(line, "link name", (isIt ? "→ " : "") + frame.name, () => choose({ name: frame.function }));
    lineAt(line, placeText(frame));
  }
}

function fold(parent, title, draw, isOpen) {
  const box = make(parent, "details", "fold");
  make(box, "summary", "", title);
  box.addEventListener("toggle", () => box.childElementCount > 1 || draw(box));
  if (isOpen) {
    draw(box);
    box.open = true;
  }
}

function drawFigures(parent, figures) {
  const list = make(parent, "dl");
  figures.forEach((figure, key) => {
    if (!figure && key > 1) return;
    make(list, "dt", "", TITLES[key]);
    make(list, "dd", follows(key) ? "" : "soft", grouped(figure) + " (" + percent(figure, totals.now[key]) + ")");
  });
}

function figuresOf(chosen) {
  const sums = KEYS.map(() => 0);
  for (const row of rows) {
    if (placeOf(chosen, row.stack, row.site) >= 0) row.now.forEach((weight, key) => (sums[key] += weight));
  }
  return sums;
}

function foldCalls(pane, outwards, isOpen) {
  fold(pane, (outwards ? "Callers" : "Callees") + " by " + measures[state.measure][0], (box) => {
    const tree = callsFrom(outwards);
    drawCalls(box, tree, tree.weight, false);
    if (tree.below.size === 0) make(box, "p", "soft", "none");
  }, isOpen);
}

function drawSite(pane, site) {
  make(pane, "p", "place", site.frame.place);
  make(pane, "p", "soft", [site.kinds, site.frame.module && "in " + site.frame.module].filter(Boolean).join(" "));
  if (site.source.length) make(pane, "pre", "", site.source.join("\n"));
  drawFigures(pane, site.now);
  for (const finding of data.findings.filter((finding) => finding.site === site.index)) {
    fold(pane, finding.title.split(":")[0], (box) => {
      for (const line of finding.lines) make(box, "p", "", line);
    }, true);
  }
  foldCalls(pane, true, true);
  foldCalls(pane, false, false);
  site.nodes.forEach((node, index) => {
    const title = index > 0 ? "Another stack" : "The stack with most calls";
    fold(pane, title, (box) => drawStack(box, stacks[node], site), false);
  });
}

function drawFunction(pane, name) {
  const places = new Set(frames.filter((frame) => frame.function === name).map((frame) => frame.place));
  for (const place of [...places].slice(0, 4)) make(pane, "p", "place", place);
  if (places.size > 4) make(pane, "p", "soft", counted(places.size - 4, "more line"));
  drawFigures(pane, figuresOf({ name }));
  foldCalls(pane, true, true);
  foldCalls(pane, false, true);
  const below = new Map();
  for (const row of rows) {
    if (row.site && row.now[0] > 0 && placeOf({ name }, row.stack) >= 0) {
      below.set(row.site, (below.get(row.site) || 0) + row.now[0]);
    }
  }
  if (below.size === 0) return;
  fold(pane, "Sites below it", (box) => {
    for (const [site, calls] of [...below].sort((a, b) => b[1] - a[1]).slice(0, BELOW)) {
      const line = make(box, "div", "call");
      make(line, "span", "share", grouped(calls));
      siteLink(line, site);
    }
  }, true);
}

function drawChosen(pane) {
  pane.hidden = state.chosen === null;
  pane.replaceChildren();
  if (pane.hidden) return;
  const head = make(pane, "div", "tools");
  make(head, "h2", "name", chosenName());
  button(head, "boxed", "✕", () => choose(null)).ariaLabel = "Choose nothing";
  const links = make(pane, "div", "tools");
  for (const id of ["findings", "sites", "flame", "timeline"]) {
    const view = views.find((view) => view.id === id);
    if (view && view.id !== state.tab) button(links, "link", "→ " + view.title, () => openTab(id, true));
  }
  const note = partNote(state.measure);
  if (note) make(pane, "p", "soft", note);
  if (state.chosen.site !== undefined) drawSite(pane, sites[state.chosen.site]);
  else if (state.chosen.name !== undefined) drawFunction(pane, state.chosen.name);
  else drawStack(pane, stacks[state.chosen.node]);
}
