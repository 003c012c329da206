// The page's data, and what the reader has chosen to see of it. Names are only ever set as text, never as markup.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
// The measures, in the order of a row's weights; those of a part of the run are calls and bytes alone.
const KEYS = ["calls", "bytes", "peak", "live", "temporary", "tiny"];
const TITLES = ["calls", "bytes", "at peak", "live at end", "temporary", "under 32 B"];
const IN_PARTS = 2;

const state = {
  tab: "summary",
  sort: "calls", up: false, all: false, // Of the sites.
  filter: "",
  measure: 0, inverted: false, templates: false, libraries: false, zoom: [], // Of the flame graph.
  chosen: null, // { site }, { name: a function's } or { node, title: a stack's }.
  part: null, // { span: [from, to] in groups of columns } or { thread }.
};

// Texts.

const grouped = (value) => value.toLocaleString("en");
const percent = (part, whole) => (whole > 0 ? (part * 100 / whole).toFixed(1) + " %" : "");
const counted = (count, noun) => grouped(count) + " " + noun + (count === 1 ? "" : "s");
function seconds(ns) {
  if (ns < 1e3) return ns > 0 ? ns.toFixed(0) + " ns" : "0 s";
  if (ns < 1e6) return (ns / 1e3).toFixed(1) + " µs";
  return ns < 1e9 ? (ns / 1e6).toFixed(1) + " ms" : (ns / 1e9).toFixed(2) + " s";
}
function sized(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; bytes >= 1024 && unit < units.length - 1; unit++) bytes /= 1024;
  return (unit > 0 ? bytes.toFixed(1) : bytes) + " " + units[unit];
}

// Frames, stacks and sites.

const programs = new Set(data.processes.map((process) => process.program));
const frames = data.frames.map(([name, place, module, inlined]) => ({
  name: data.names[name], place: data.names[place], module: data.names[module], inlined: inlined > 0,
  // Without the offset of the call in it.
  function: data.names[place].endsWith("[no name]") ? data.names[name] : data.names[name].replace(/\+0x[0-9a-f]+$/, ""),
  isLibrary: !programs.has(data.names[module]),
}));

const stacks = [[]]; // Of each node, outermost frame first.
data.nodes.parents.forEach((parent, node) => {
  if (node > 0) stacks.push([...stacks[parent], frames[data.nodes.frames[node]]]);
});

const NOWHERE = { name: "[no stack]", place: "", module: "", function: "[no stack]" };
const sites = data.sites.map((site, index) => ({
  ...site, index, frame: site.frame === null ? NOWHERE : frames[site.frame],
}));
for (const site of sites) {
  const around = site.nodes.flatMap((node) => stacks[node].flatMap((frame) => [frame.name, frame.place]));
  site.text = [site.frame.name, site.frame.place, site.frame.module, site.kinds, ...around].join("\n").toLowerCase();
}

// `part:calls.bytes,…` as [part, calls, bytes, …]. A part alone has all; one without a number is the next.
const number = (digits) => parseInt(digits, 36);
function cells(text, [allCalls, allBytes]) {
  const found = [];
  for (const cell of text.split(",").filter(Boolean)) {
    const [, part, calls, bytes] = /^(?:(\w+):)?(\w*)(?:\.(\w+))?$/.exec(cell);
    const made = calls ? number(calls) : allCalls;
    found.push(part ? number(part) : (found.at(-3) ?? -1) + 1, made,
      bytes ? number(bytes) : Math.round(made / allCalls * allBytes));
  }
  return found;
}

// `node site weights spans threads`, all numbers in base 36.
const rows = data.rows.split(";").filter(Boolean).map((row) => {
  const [node, site, given, ...parts] = row.split(" ");
  const weights = given.split(",").filter(Boolean).map(number);
  while (weights.length < KEYS.length) weights.push(0);
  const [spans, threads] = parts.map((part) => cells(part, weights));
  return { stack: stacks[number(node)], site: sites[number(site)], weights, spans, threads, now: weights };
});
const measures = [...data.measures.map((title) => [title, false]), ...data.others];

const isAt = (frame, of) => frame.name === of.name && frame.place === of.place;

// The part of the run that is looked at.

const timeline = data.timeline;
const groups = timeline ? Math.ceil(timeline.totals.length / timeline.group) : 0;
// When a column begins; in a trace without times after so many events.
const moment = (column) => (timeline.column_ns === null
  ? counted(Math.round(column * timeline.column_events), "event") : seconds(column * timeline.column_ns));
const groupStart = (group) => moment(Math.min(group * timeline.group, timeline.totals.length));
const threadName = ([pid, thread]) => "thread " + thread + (data.processes.length > 1 ? " of process " + pid : "");

function partName(part) {
  if (part.span) return groupStart(part.span[0]) + " to " + groupStart(part.span[1]);
  return threadName(data.threads[part.thread]);
}

function within(row) {
  const { span, thread } = state.part;
  const [cells, from, to] = span ? [row.spans, span[0], span[1]] : [row.threads, thread, thread + 1];
  let [calls, bytes] = [0, 0];
  for (let at = 0; at < cells.length; at += 3) {
    if (cells[at] >= from && cells[at] < to) {
      calls += cells[at + 1];
      bytes += cells[at + 2];
    }
  }
  return [calls, bytes, ...row.weights.slice(IN_PARTS)];
}

const totals = { now: [] };
function sumUp() {
  const sum = () => KEYS.map(() => 0);
  [totals.now, totals.folded] = [sum(), sum()];
  for (const site of sites) site.now = sum();
  for (const row of rows) {
    row.now = state.part ? within(row) : row.weights;
    const of = row.site ? row.site.now : totals.folded;
    row.now.forEach((weight, key) => {
      of[key] += weight;
      totals.now[key] += weight;
    });
  }
}

const follows = (measure) => !state.part || measure < IN_PARTS;
const partNote = (measure) => (!state.part ? "" : follows(measure) ? "only " + partName(state.part)
  : "of the whole run: a part of it has calls and bytes alone");

// Each stack with what it weighs, 0 left out.
function weighed(measure) {
  const other = measures[measure][2];
  if (!other) {
    return rows.filter((row) => row.now[measure] > 0)
      .map((row) => ({ stack: row.stack, site: row.site, weight: row.now[measure] }));
  }
  const found = [];
  for (let at = 0; at < other.length; at += 2) found.push({ stack: stacks[other[at]], weight: other[at + 1] });
  return found;
}
function figure(weight) {
  const [title, isTime] = measures[state.measure];
  return (isTime ? seconds(weight) : grouped(weight)) + " " + title;
}

// What was chosen.

const chosenName = () => {
  const { site, name, title } = state.chosen;
  return site !== undefined ? sites[site].frame.name : name !== undefined ? name : title;
};
// The index of the chosen frame on a stack, -1 if it is not on it. A function counts from its outermost frame.
function placeOf(chosen, stack, site) {
  if (chosen.site !== undefined) {
    return site !== sites[chosen.site] ? -1 : stack.findLastIndex((frame) => isAt(frame, site.frame));
  }
  if (chosen.name !== undefined) return stack.findIndex((frame) => frame.function === chosen.name);
  return stacks[chosen.node] === stack ? stack.length - 1 : -1;
}
const isChosen = (chosen) => state.chosen !== null
  && ["site", "name", "node"].every((key) => state.chosen[key] === chosen[key]);

// The address of the page keeps it.

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  const index = (key, count) => {
    const value = Number(given.get(key));
    return given.has(key) && Number.isInteger(value) && value >= 0 && value < count ? value : undefined;
  };
  if (KEYS.includes(given.get("sort")) || given.get("sort") === "name") state.sort = given.get("sort");
  state.up = given.get("order") === "up";
  state.filter = given.get("filter") || "";
  state.measure = index("measure", measures.length) ?? 0;
  for (const key of ["inverted", "templates", "libraries"]) state[key] = given.has(key);
  if (given.has("tab")) state.tab = given.get("tab");
  if (index("site", sites.length) !== undefined) state.chosen = { site: index("site", sites.length) };
  else if (given.has("function")) state.chosen = { name: given.get("function") };
  const [from, to] = [index("from", groups), index("to", groups + 1)];
  if (from < to) state.part = { span: [from, to] };
  const thread = index("thread", data.threads.length);
  if (thread !== undefined) state.part = { thread };
}

function writeAddress() {
  const now = new URLSearchParams({ tab: state.tab, sort: state.sort });
  if (state.up) now.set("order", "up");
  if (state.filter) now.set("filter", state.filter);
  if (state.measure) now.set("measure", state.measure);
  for (const key of ["inverted", "templates", "libraries"]) if (state[key]) now.set(key, "");
  const { chosen, part } = state;
  if (chosen?.site !== undefined) now.set("site", chosen.site);
  if (chosen?.name !== undefined) now.set("function", chosen.name);
  if (part?.span) [["from", part.span[0]], ["to", part.span[1]]].forEach(([key, value]) => now.set(key, value));
  if (part?.thread !== undefined) now.set("thread", part.thread);
  history.replaceState(null, "", "#" + now);
}

// Elements.

function make(parent, tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

// Two lines on a narrow screen. All of it is in the line's title, and beside the views once its site is chosen.
const MOST_OF_PLACE = 60;
function endOf(place) {
  const from = place.length - MOST_OF_PLACE;
  return from <= 0 ? place : "…" + place.slice(Math.max(place.indexOf("/", from), from));
}
function lineAt(parent, place) {
  make(parent, "span", "place", endOf(place)).title = place;
}

function button(parent, className, text, press) {
  const made = make(parent, "button", className, text);
  made.type = "button";
  made.addEventListener("click", press);
  return made;
}
function table(parent, label, headings) {
  const scroll = make(parent, "div", "scroll");
  scroll.tabIndex = 0;
  scroll.role = "region";
  scroll.ariaLabel = label;
  const made = make(scroll, "table");
  const head = make(make(made, "thead"), "tr");
  for (const [text, className] of headings) make(head, "th", className, text).scope = "col";
  return make(made, "tbody");
}
// Whether these texts have all words of the search.
function matches(...texts) {
  const text = texts.join("\n").toLowerCase();
  return state.filter.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}
