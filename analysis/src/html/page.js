// Shows the page's data. Names are only ever set as text, never as markup.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const KEYS = ["calls", "bytes", "peak", "tiny", "live"];
  const TITLES = ["calls", "bytes", "at peak", "under 32 B", "live at end"];
  const ROWS = 25; // Rows of the table, until the user asks for all.
  const state = { sort: "calls", up: false, filter: "", measure: 0, focus: 0, rows: ROWS };

  const make = (parent, tag, className, text) => {
    const made = document.createElement(tag);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    parent.append(made);
    return made;
  };
  const section = (id) => document.getElementById(id);
  const grouped = (value) => value.toLocaleString("en");
  const percent = (part, whole) => (whole > 0 ? (part * 100 / whole).toFixed(1) + " %" : "");
  const seconds = (ns) => (ns < 1e6 ? (ns / 1e3).toFixed(1) + " µs" : ns < 1e9 ? (ns / 1e6).toFixed(1) + " ms"
    : (ns / 1e9).toFixed(2) + " s");
  const counted = (count, noun) => grouped(count) + " " + noun + (count === 1 ? "" : "s");
  const name = (number) => data.names[number];

  function readHash() {
    const given = new URLSearchParams(location.hash.slice(1));
    if (KEYS.includes(given.get("sort")) || ["name", "place"].includes(given.get("sort"))) state.sort = given.get("sort");
    state.up = given.get("order") === "up";
    state.filter = given.get("filter") || "";
    const measure = Number(given.get("measure"));
    if (Number.isInteger(measure) && data.measures[measure]) state.measure = measure;
  }

  function writeHash() {
    const now = new URLSearchParams({ sort: state.sort });
    if (state.up) now.set("order", "up");
    if (state.filter) now.set("filter", state.filter);
    if (state.measure) now.set("measure", state.measure);
    history.replaceState(null, "", "#" + now);
  }

  function showHead() {
    const head = section("head");
    const first = data.processes[0];
    make(head, "h1", "", first ? first.command : data.trace);
    const sum = (key) => data.processes.reduce((all, process) => all + process[key], 0);
    const longest = data.processes.reduce((most, process) => Math.max(most, process.duration_ns), 0);
    make(head, "p", "soft", [data.trace, counted(data.processes.length, "process image"),
      counted(sum("threads"), "thread"), counted(sum("events"), "event"), seconds(longest),
      "larder " + data.version].join(", "));
    for (const line of data.losses) make(head, "p", "warning", line);
    if (data.wrappers) make(head, "p", "soft", data.wrappers);
    for (const line of data.symbols) make(head, "p", "soft", line);
  }

  function showCounters() {
    const grid = make(section("counters"), "div", "figures");
    for (const [title, value] of data.counters) {
      const box = make(grid, "div", "figure");
      make(box, "span", "soft", title);
      make(box, "b", "", grouped(value));
    }
  }

  function showFindings() {
    const place = section("findings");
    place.hidden = data.findings.length === 0;
    for (const finding of data.findings) {
      const box = make(place, "div", "finding");
      make(box, "b", "", finding.title);
      if (finding.source.length) make(box, "pre", "", finding.source.join("\n"));
      for (const line of finding.lines) make(box, "p", "", line);
    }
  }

  // Sites.

  const totals = KEYS.map((_, key) => data.sites.reduce((sum, site) => sum + site.figures[key], data.folded.figures[key]));
  for (const site of data.sites) {
    const frames = site.stacks.flatMap((stack) => stack.frames.flatMap((frame) => [name(frame[0]), name(frame[1])]));
    site.text = [name(site.name), name(site.place), name(site.module), site.kinds, ...frames].join("\n").toLowerCase();
  }
  let body, count, all;
  const headings = new Map();

  function buildSites() {
    const place = section("sites");
    const tools = make(place, "div", "tools");
    const filter = make(tools, "input");
    filter.type = "search";
    filter.placeholder = "filter by function, file, module or caller";
    filter.value = state.filter;
    filter.addEventListener("input", () => {
      state.filter = filter.value;
      showSites();
      drawFlame();
    });
    count = make(tools, "span", "soft");
    const table = make(make(place, "div", "scroll"), "table");
    const head = make(make(table, "thead"), "tr");
    const heading = (key, title, className) => {
      const cell = make(head, "th", className);
      make(cell, "button", "", title).addEventListener("click", () => {
        state.up = state.sort === key ? !state.up : className === "words";
        state.sort = key;
        showSites();
      });
      headings.set(key, cell);
    };
    make(head, "th", "", "share");
    KEYS.forEach((key, index) => heading(key, TITLES[index], ""));
    heading("name", "function", "words");
    heading("place", "line", "words");
    body = make(table, "tbody");
    all = make(place, "button", "boxed");
    all.addEventListener("click", () => {
      state.rows = Infinity;
      showSites();
    });
  }

  function sortedSites() {
    const words = state.filter.toLowerCase().split(/\s+/).filter(Boolean);
    const key = KEYS.indexOf(state.sort);
    const value = (site) => (key >= 0 ? site.figures[key] : name(site[state.sort]));
    const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    return data.sites.filter((site) => words.every((word) => site.text.includes(word)))
      .sort((a, b) => (state.up ? 1 : -1) * order(value(a), value(b)) || b.figures[0] - a.figures[0]);
  }

  function showSites() {
    for (const [key, cell] of headings) {
      cell.ariaSort = key === state.sort ? (state.up ? "ascending" : "descending") : null;
    }
    const shown = sortedSites();
    const key = Math.max(KEYS.indexOf(state.sort), 0);
    body.replaceChildren();
    for (const site of shown.slice(0, state.rows)) {
      const row = make(body, "tr", "site");
      make(row, "td", "", percent(site.figures[key], totals[key]));
      for (const figure of site.figures) make(row, "td", "", grouped(figure));
      make(row, "td", "words name", name(site.name)).title = site.kinds;
      make(row, "td", "words name", name(site.place)).title = name(site.module);
      unfolds(row, site);
    }
    if (data.folded.count > 0 && !state.filter) {
      const row = make(body, "tr", "folded soft");
      make(row, "td", "", percent(data.folded.figures[key], totals[key]));
      for (const figure of data.folded.figures) make(row, "td", "", grouped(figure));
      make(row, "td", "words", counted(data.folded.count, "other site") + " under " + data.share + " % of everything").colSpan = 2;
    }
    all.hidden = shown.length <= state.rows;
    all.textContent = "show all " + grouped(shown.length);
    count.textContent = grouped(shown.length) + " of " + counted(data.sites.length, "site");
    writeHash();
  }

  function unfolds(row, site) {
    row.tabIndex = 0;
    row.addEventListener("click", () => toggleStacks(row, site));
    row.addEventListener("keydown", (event) => {
      if (event.key === "Enter") toggleStacks(row, site);
    });
  }

  function toggleStacks(row, site) {
    if (row.nextSibling && row.nextSibling.className === "stacks") {
      row.nextSibling.remove();
      return;
    }
    const detail = document.createElement("tr");
    detail.className = "stacks";
    const cell = make(detail, "td", "frames");
    cell.colSpan = row.cells.length;
    site.stacks.forEach((stack, index) => {
      if (index > 0) make(cell, "p", "soft", "another stack");
      stack.frames.forEach(([function_, place, inlined], frame) => {
        make(cell, "div", frame === stack.at ? "at" : "", (frame === stack.at ? "→ " : "\u00a0\u00a0") + name(function_)
          + "  " + name(place) + (inlined ? "  [inlined]" : ""));
      });
      if (stack.more > 0) make(cell, "div", "soft", counted(stack.more, "more caller"));
    });
    row.after(detail);
  }

  // Copies, system calls and processor time, of those the trace has.

  function showTables() {
    for (const table of data.tables) {
      const place = section(table.id);
      place.hidden = false;
      if (table.title) make(place, "h3", "", table.title);
      for (const note of table.notes) make(place, "p", "soft", note);
      const made = make(make(place, "div", "scroll"), "table");
      const head = make(make(made, "thead"), "tr");
      for (const title of table.columns) make(head, "th", "", title);
      for (const title of ["function", "line"]) make(head, "th", "words", title);
      const rows = make(made, "tbody");
      for (const site of table.rows) {
        const row = make(rows, "tr", site.stacks.length > 0 ? "site" : "");
        for (const cell of site.cells) make(row, "td", "", cell);
        for (const words of [site.name, site.place]) make(row, "td", "words name", name(words));
        if (site.stacks.length > 0) unfolds(row, site);
      }
    }
  }

  // The flame graph: callers above callees. A node is [parent, name, weights…].

  const children = data.tree.map(() => []);
  data.tree.forEach((node, index) => {
    if (index > 0) children[node[0]].push(index);
  });
  const weight = (index) => data.tree[index][2 + state.measure];
  const weighed = (index) => {
    const [title, isTime] = data.measures[state.measure];
    return (isTime ? seconds(weight(index)) : grouped(weight(index))) + " " + title;
  };
  let graph, caption;

  function buildFlame() {
    const tools = make(section("flame"), "div", "tools");
    const measure = make(tools, "select");
    data.measures.forEach(([title], index) => (make(measure, "option", "", title).value = index));
    measure.value = state.measure;
    measure.addEventListener("change", () => {
      state.measure = Number(measure.value);
      drawFlame();
      writeHash();
    });
    make(tools, "button", "boxed", "whole").addEventListener("click", () => focus(0));
    caption = make(tools, "span", "soft");
    graph = make(section("flame"), "div", "graph");
  }

  function focus(index) {
    state.focus = index;
    drawFlame();
  }

  // The callers of the focus at full width, what it calls below.
  function placeNodes() {
    const placed = [];
    const above = [];
    for (let index = state.focus; index !== 0; index = data.tree[index][0]) above.unshift(data.tree[index][0]);
    above.forEach((index, depth) => placed.push([index, depth, 0, 1]));
    const open = [[state.focus, above.length, 0, 1]];
    while (open.length > 0) {
      const [index, depth, left, width] = open.pop();
      placed.push([index, depth, left, width]);
      let at = left;
      const below = children[index].slice().sort((a, b) => weight(b) - weight(a));
      for (const child of below) {
        const share = weight(index) > 0 ? width * weight(child) / weight(index) : 0;
        if (share >= 0.0008) open.push([child, depth + 1, at, share]);
        at += share;
      }
    }
    return placed;
  }

  function hue(text) {
    let sum = 7;
    for (const letter of text) sum = (sum * 31 + letter.codePointAt(0)) % 997;
    return sum % 60;
  }

  function drawFlame() {
    const words = state.filter.toLowerCase().split(/\s+/).filter(Boolean);
    const placed = placeNodes();
    graph.replaceChildren();
    let depths = 1;
    for (const [index, depth, left, width] of placed) {
      const text = name(data.tree[index][1]);
      const lower = text.toLowerCase();
      const hit = words.length > 0 && words.every((word) => lower.includes(word));
      const box = make(graph, "div", hit ? "hit" : "", text);
      box.title = text + "\n" + weighed(index) + ", " + percent(weight(index), weight(0));
      box.style.left = left * 100 + "%";
      box.style.width = width * 100 + "%";
      box.style.top = depth * 18 + "px";
      box.style.background = "hsl(" + (hue(text) + 5) + " 75% 68%)";
      box.addEventListener("click", () => focus(index));
      depths = Math.max(depths, depth + 1);
    }
    graph.style.height = depths * 18 + "px";
    caption.textContent = weighed(0) + "; frames under " + data.share
      + " % are left out; the filter above marks frames";
  }

  function showSizes() {
    const table = make(make(section("sizes"), "div", "scroll"), "table");
    const head = make(make(table, "thead"), "tr");
    for (const title of ["size in bytes", "calls", "", "bytes", ""]) make(head, "th", "", title);
    const rows = make(table, "tbody");
    const most = [2, 3].map((key) => data.sizes.reduce((sum, row) => Math.max(sum, row[key]), 1));
    for (const size of data.sizes) {
      const row = make(rows, "tr");
      make(row, "td", "", size[0] === size[1] ? size[0] : size[0] + "–" + size[1]);
      for (const key of [2, 3]) {
        make(row, "td", "", grouped(size[key]));
        const bar = make(make(row, "td", "bars"), "div", "bar");
        bar.style.width = size[key] * 100 / most[key - 2] + "%";
      }
    }
  }

  function showProcesses() {
    const place = section("processes");
    place.hidden = data.processes.length < 2;
    const table = make(make(place, "div", "scroll"), "table");
    const head = make(make(table, "thead"), "tr");
    for (const title of ["process", "calls", "bytes", "at peak"]) make(head, "th", "", title);
    make(head, "th", "words", "command");
    const rows = make(table, "tbody");
    for (const process of data.processes) {
      const row = make(rows, "tr");
      make(row, "td", "", String(process.pid));
      for (const figure of process.figures) make(row, "td", "", grouped(figure));
      make(row, "td", "words name", process.command);
    }
  }

  readHash();
  showHead();
  showCounters();
  showFindings();
  buildSites();
  showSites();
  showTables();
  buildFlame();
  drawFlame();
  showSizes();
  showProcesses();
})();
