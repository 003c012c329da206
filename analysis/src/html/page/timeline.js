// Live bytes over time, and calls below them. A span of it is what the other views show.

const WIDE = 1000;
const [TOP, BOTTOM, CALLS, END] = [16, 260, 284, 330]; // Live bytes from 16 to 260, calls from 284 to 330.

function drawn(parent, tag, attributes, text) {
  const made = document.createElementNS(document.getElementById("pictures").namespaceURI, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

const peakBytes = Math.max(...(timeline?.totals || [0]));
const peakTime = () => "at " + moment(timeline.totals.indexOf(peakBytes));
const columnX = (column) => (column * WIDE / timeline.totals.length).toFixed(1);
const bytesY = (bytes) => (BOTTOM - (BOTTOM - TOP) * bytes / peakBytes).toFixed(1);

// The area between two lines of steps.
function area(base, top) {
  let path = "M0 " + bytesY(base[0]);
  for (let column = 0; column < top.length; column++) path += "H" + columnX(column) + "V" + bytesY(top[column]);
  path += "H" + WIDE;
  for (let column = top.length - 1; column >= 0; column--) path += "V" + bytesY(base[column]) + "H" + columnX(column);
  return path + "Z";
}

function layers() {
  const found = timeline.sites.map(([site, columns], index) => ({ site: sites[site], columns, kind: "t" + index }));
  const rest = (total, column) => found.reduce((left, layer) => left - layer.columns[column], total);
  if (timeline.others > 0) found.push({ columns: timeline.totals.map(rest), kind: "rest" });
  return found;
}
const layerName = (layer) => (layer.site ? layer.site.frame.name : counted(timeline.others, "other site"));

// Calls by group: of all, and of what was chosen.
function callsByGroup() {
  const [all, own] = [Array(groups).fill(0), Array(groups).fill(0)];
  for (const row of rows) {
    const isOwn = state.chosen && placeOf(state.chosen, row.stack, row.site) >= 0;
    for (let at = 0; at < row.spans.length; at += 3) {
      all[row.spans[at]] += row.spans[at + 1];
      if (isOwn) own[row.spans[at]] += row.spans[at + 1];
    }
  }
  return [all, own];
}

// A round distance of up to five lines.
function byteStep(most) {
  let step = 1;
  while (most / step >= 5) step *= 2;
  return step;
}

function drawTicks(chart, svg) {
  const step = byteStep(peakBytes);
  for (let at = step; at <= peakBytes; at += step) {
    drawn(svg, "line", { x1: 0, x2: WIDE, y1: bytesY(at), y2: bytesY(at) });
    make(chart, "span", "tick soft", sized(at)).style.top = bytesY(at) * 100 / (END + 4) + "%";
  }
}

function drawChart(parent) {
  const chart = make(parent, "div", "chart");
  const size = { viewBox: `0 0 ${WIDE} ${END + 4}`, preserveAspectRatio: "none" };
  const svg = drawn(chart, "svg", { ...size, class: "timeline", role: "img" });
  svg.ariaLabel = "Live bytes over time: up to " + sized(peakBytes) + " " + peakTime();
  let base = timeline.totals.map(() => 0);
  const isAmong = state.chosen?.site !== undefined && timeline.sites.some(([site]) => site === state.chosen.site);
  for (const layer of layers()) {
    const top = base.map((bytes, column) => bytes + layer.columns[column]);
    const isIt = layer.site && state.chosen?.site === layer.site.index;
    const path = drawn(svg, "path", { d: area(base, top), class: layer.kind + (isAmong && !isIt ? " dim" : "") });
    drawn(path, "title", {}, layerName(layer));
    if (layer.site) path.dataset.site = layer.site.index;
    base = top;
  }
  drawTicks(chart, svg);
  const at = columnX(timeline.totals.indexOf(peakBytes));
  drawn(svg, "line", { x1: at, x2: at, y1: 0, y2: BOTTOM, class: "peak" });
  const [all, own] = callsByGroup();
  const most = Math.max(...all, 1);
  const bar = (calls, group, kind) => {
    const [x, height] = [Number(columnX(group * timeline.group)), (END - CALLS) * calls / most];
    const width = Math.min(WIDE, Number(columnX((group + 1) * timeline.group))) - x;
    drawn(svg, "rect", { x, width: Math.max(width - 1, 0), y: END - height, height, class: kind });
  };
  all.forEach((calls, group) => bar(calls, group, "calls"));
  own.forEach((calls, group) => calls > 0 && bar(calls, group, "own"));
  if (state.part?.span) {
    const [from, to] = state.part.span.map((group) => Math.min(WIDE, Number(columnX(group * timeline.group))));
    drawn(svg, "rect", { x: 0, width: from, y: 0, height: END, class: "outside" });
    drawn(svg, "rect", { x: to, width: WIDE - to, y: 0, height: END, class: "outside" });
  }
  return svg;
}

function setSpan(from, to) {
  state.part = from <= 0 && to >= groups ? null : { span: [from, to] };
  refresh();
}

// A drag selects a span, a click the site below it.
function listens(svg) {
  const group = (event) => {
    const box = svg.getBoundingClientRect();
    return Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1) * groups;
  };
  let began = null;
  svg.addEventListener("pointerdown", (event) => {
    began = [group(event), event.clientX];
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointerup", (event) => {
    if (!began) return;
    const [from, to] = [began[0], group(event)].sort((a, b) => a - b);
    if (Math.abs(event.clientX - began[1]) > 4) setSpan(Math.floor(from), Math.ceil(to));
    else {
      const below = document.elementsFromPoint(event.clientX, event.clientY).find((element) => element.dataset?.site);
      if (below) choose({ site: Number(below.dataset.site) });
    }
    began = null;
  });
}

function spanTools(panel) {
  const tools = make(panel, "div", "tools");
  const [from, to] = state.part?.span || [0, groups];
  const slider = (text, value, least, most, set) => {
    const label = make(tools, "label", "", text + " ");
    const input = make(label, "input");
    Object.assign(input, { type: "range", min: least, max: most, value });
    input.ariaLabel = text;
    const end = make(label, "output", "", groupStart(value));
    input.ariaValueText = end.textContent;
    input.addEventListener("input", () => (end.textContent = groupStart(Number(input.value))));
    input.addEventListener("change", () => set(Number(input.value)));
  };
  slider("from", from, 0, groups - 1, (value) => setSpan(value, Math.max(value + 1, to)));
  slider("to", to, 1, groups, (value) => setSpan(Math.min(from, value - 1), value));
  const whole = button(tools, "boxed", "whole run", () => setSpan(0, groups));
  whole.disabled = !state.part?.span;
}

function drawTimeline(panel) {
  const isOfOne = data.processes.length > 1;
  const process = isOfOne ? "Of process " + timeline.pid + ", the image with the highest peak. " : "";
  make(panel, "p", "soft", process + "Drag over it, or move the ends below: the sites, the flame graph, callers and"
    + " callees then count calls and bytes of that span alone.");
  const svg = drawChart(panel);
  listens(svg);
  const axis = make(panel, "div", "axis soft");
  for (const quarter of [0, 1, 2, 3, 4]) make(axis, "span", "", moment(timeline.totals.length * quarter / 4));
  spanTools(panel);
  if (state.chosen) {
    const isAmong = timeline.sites.some(([site]) => site === state.chosen.site);
    make(panel, "p", "", "The strong part of the bars is calls of " + chosenName()
      + (isAmong ? "; the bright area is what it holds." : "."));
  }
  const legend = make(panel, "ul", "legend");
  for (const layer of layers()) {
    const line = make(legend, "li");
    const key = drawn(line, "svg", { viewBox: "0 0 11 11", class: "timeline key", "aria-hidden": "true" });
    drawn(key, "rect", { width: 11, height: 11, class: layer.kind });
    if (layer.site) siteLink(line, layer.site);
    else make(line, "span", "", layerName(layer));
    make(line, "span", "soft", "up to " + sized(Math.max(...layer.columns)));
  }
}
