// The flame graph: callers above callees, or inverted, what is called above its callers.

const ROW = 18; // In pixels.
const LEAST = 0.0008; // Of the width: narrower frames are left out.

// Without the arguments of templates and generics; operator< and <T as Trait> stay.
function withoutArguments(name) {
  let [out, depth] = ["", 0];
  for (let at = 0; at < name.length; at++) {
    const letter = name[at];
    const isOperator = /operator[<>=-]{0,2}$/.test(name.slice(0, at));
    if (letter === "<" && !isOperator && (depth > 0 || /[^\s(,&*]/.test(name[at - 1] || ""))) {
      if (depth++ === 0) out += "<…>";
    } else if (letter === ">" && !isOperator && depth > 0 && name[at - 1] !== "-") {
      depth--;
    } else if (depth === 0) {
      out += letter;
    }
  }
  return out;
}

const folded = new Map();
function labelOf(frame) {
  if (state.libraries && frame.isLibrary) return "[" + frame.module + "]";
  if (!state.templates) return frame.function;
  if (!folded.has(frame.function)) folded.set(frame.function, withoutArguments(frame.function));
  return folded.get(frame.function);
}

// { label, weight, frame, places, sites: weights of those that are charged at it, lit, above, below: by label }.
function flameTree() {
  const root = { label: "all", weight: 0, places: new Set(), sites: new Map(), below: new Map() };
  for (const { stack, site, weight } of weighed(state.measure)) {
    const place = state.chosen ? placeOf(state.chosen, stack, site) : -1;
    const charged = site ? stack.findLastIndex((frame) => isAt(frame, site.frame)) : -1;
    const path = stack.map((_, index) => (state.inverted ? stack.length - 1 - index : index));
    let at = root;
    root.weight += weight;
    for (const index of path) {
      const frame = stack[index];
      const label = labelOf(frame);
      if (!(state.libraries && frame.isLibrary && at.label === label)) {
        if (!at.below.has(label)) {
          const [places, sites, below] = [new Set(), new Map(), new Map()];
          at.below.set(label, { label, frame, weight: 0, above: at, places, sites, below });
        }
        at = at.below.get(label);
        at.weight += weight;
      }
      at.places.add(frame.place);
      if (index === charged) at.sites.set(site, (at.sites.get(site) || 0) + weight);
      if (place >= 0) at.lit = at.lit === "at" || index === place ? "at" : "lit";
    }
  }
  return root;
}

// The callers of the focus at full width, what is below it beside each other: [node, depth, left, width].
function placeNodes(focus) {
  const placed = [];
  for (let node = focus.above; node; node = node.above) placed.unshift([node, 0, 0, 1]);
  placed.forEach((place, depth) => (place[1] = depth));
  const open = [[focus, placed.length, 0, 1]];
  while (open.length > 0) {
    const [node, depth, left, width] = open.pop();
    placed.push([node, depth, left, width]);
    let at = left;
    const below = [...node.below.values()].sort((a, b) => b.weight - a.weight);
    const shares = below.map((child) => width * child.weight / node.weight);
    node.inside = below.filter((_, index) => shares[index] >= LEAST);
    const inside = node.inside.map((child, index) => {
      at += shares[index];
      return [child, depth + 1, at - shares[index], shares[index]];
    });
    open.push(...inside.reverse()); // The leftmost is next.
  }
  return placed;
}

function hue(text) {
  let sum = 7;
  for (const letter of text) sum = (sum * 31 + letter.codePointAt(0)) % 997;
  return sum % 50 + 10;
}

function describe(node, whole) {
  const places = [...node.places].slice(0, 3).join(", ") + (node.places.size > 3 ? " …" : "");
  const figures = figure(node.weight) + ", " + percent(node.weight, whole);
  return [node.frame ? node.frame.function : node.label, places, figures].filter(Boolean).join("\n");
}

function flameTools(panel, redraw) {
  const tools = make(panel, "div", "tools");
  const folds = [["templates", "fold templates"], ["libraries", "fold libraries"]];
  for (const [key, text] of [["inverted", "inverted"], ...folds]) {
    button(tools, "boxed", text, () => {
      state[key] = !state[key];
      state.zoom = [];
      redraw();
    }).ariaPressed = state[key];
  }
  const whole = button(tools, "boxed", "whole", () => {
    state.zoom = [];
    redraw();
  });
  whole.disabled = state.zoom.length === 0;
  const next = button(tools, "boxed", "next match", () => nextMatch());
  next.disabled = !state.filter;
}

let current = null; // The box that the keyboard is at.

function nextMatch() {
  const hits = [...document.querySelectorAll("#flame .hit")];
  if (hits.length > 0) moveTo(hits[(hits.indexOf(current) + 1) % hits.length]);
}

function moveTo(box) {
  if (!box) return;
  if (current) current.tabIndex = -1;
  current = box;
  current.tabIndex = 0;
  current.focus();
}

function pressed(node, redraw) {
  state.zoom = [];
  for (let at = node; at.above; at = at.above) state.zoom.unshift(at.label);
  const [site] = [...node.sites].sort((a, b) => b[1] - a[1]).map((entry) => entry[0]);
  if (site) choose({ site: site.index });
  else if (node.frame && node.label === node.frame.function) choose({ name: node.label });
  else redraw();
  document.querySelector("#flame [data-focus]")?.focus();
}

// Arrows move, Enter chooses and widens, Escape shows all again.
function onKey(event, node, boxes, redraw) {
  const beside = node.above ? node.above.inside || [node] : [node];
  const to = {
    ArrowUp: () => node.above,
    ArrowDown: () => node.inside?.[0],
    ArrowLeft: () => beside[beside.indexOf(node) - 1],
    ArrowRight: () => beside[beside.indexOf(node) + 1],
    Home: () => boxes.keys().next().value,
  }[event.key];
  if (to) moveTo(boxes.get(to()));
  else if (event.key === "Enter" || event.key === " ") pressed(node, redraw);
  else if (event.key === "Escape" && state.zoom.length > 0) {
    state.zoom = [];
    redraw();
    document.querySelector("#flame [data-focus]")?.focus();
  } else return;
  event.preventDefault();
}

function drawFlame(panel) {
  const redraw = () => openTab("flame");
  flameTools(panel, redraw);
  const caption = make(panel, "p", "soft");
  const graph = make(panel, "div", "graph");
  graph.role = "tree";
  graph.ariaLabel = "Flame graph by " + measures[state.measure][0];
  const under = make(panel, "p", "hover name");
  const root = flameTree();
  let focus = root;
  for (const label of state.zoom) focus = focus.below.get(label) || focus;
  const boxes = new Map();
  let [depths, hits] = [1, 0];
  for (const [node, depth, left, width] of root.weight > 0 ? placeNodes(focus) : []) {
    const text = describe(node, root.weight);
    const isHit = state.filter !== "" && node !== root && matches(text);
    hits += isHit;
    const box = make(graph, "div", [isHit && "hit", node.lit].filter(Boolean).join(" "), node.label);
    boxes.set(node, box);
    box.role = "treeitem";
    box.ariaLevel = String(depth + 1);
    box.ariaLabel = box.title = text;
    if (node.lit === "at") box.ariaSelected = "true";
    box.tabIndex = node === focus ? 0 : -1;
    if (node === focus) {
      current = box;
      box.dataset.focus = "";
    }
    box.style.left = left * 100 + "%";
    box.style.width = width * 100 + "%";
    box.style.top = depth * ROW + "px";
    if (!isHit) box.style.background = node.frame?.isLibrary
      ? "hsl(" + (hue(node.label) + 180) + " 40% 76%)" : "hsl(" + hue(node.label) + " 75% 68%)";
    box.addEventListener("click", () => pressed(node, redraw));
    box.addEventListener("keydown", (event) => onKey(event, node, boxes, redraw));
    for (const kind of ["focus", "mouseenter"]) box.addEventListener(kind, () => (under.textContent = text));
    depths = Math.max(depths, depth + 1);
  }
  graph.style.height = depths * ROW + "px";
  caption.textContent = [figure(root.weight), partNote(state.measure),
    state.filter ? counted(hits, "frame") + (hits === 1 ? " matches" : " match") : "",
    "frames under " + data.share + " % are part of their callers"].filter(Boolean).join("; ");
}
