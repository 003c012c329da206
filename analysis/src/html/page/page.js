// The page: its head, its tabs, and the views that are no more than a table.

function drawHead(head) {
  const first = data.processes[0];
  const command = first ? first.command : data.trace;
  // Without the program's folder, unless the path is quoted.
  make(head, "h1", "", command.replace(/^[^\s'"\\]*\//, "")).title = command;
  const sum = (key) => data.processes.reduce((all, process) => all + process[key], 0);
  const longest = data.processes.reduce((most, process) => Math.max(most, process.duration_ns), 0);
  const counts = [[data.processes.length, "process image"], [sum("threads"), "thread"], [sum("events"), "event"]];
  make(head, "p", "soft", [data.trace, ...counts.map((count) => counted(...count)), seconds(longest),
    "larder " + data.version].join(", "));
  for (const line of data.losses) make(head, "p", "warning", line);
  if (data.wrappers) make(head, "p", "soft", data.wrappers);
}

const counter = (title) => data.counters.find((entry) => entry[0] === title)[1];

function drawSummary(panel) {
  const grid = make(panel, "div", "figures");
  const tile = (title, text, note) => {
    const box = make(grid, "div", "figure");
    make(box, "span", "soft", title);
    make(box, "b", "", text);
    make(box, "span", "soft", note);
  };
  tile("peak", sized(counter("Maximum allocated")), timeline ? peakTime() : "");
  tile("allocations", grouped(counter("Allocations")), grouped(counter("Under 32 bytes")) + " under 32 bytes");
  tile("allocated in all", sized(counter("Total allocated")), grouped(counter("Reallocs")) + " reallocs");
  tile("live at the end", sized(counter("Bytes live at the end")), counted(counter("Blocks live at the end"), "block"));
  const columns = make(panel, "div", "columns");
  const best = make(columns, "div");
  make(best, "h3", "", data.findings.length ? "Best findings" : "No finding is worth a change");
  for (const finding of data.findings.slice(0, 3)) findingOf(best, finding, false);
  if (data.findings.length > 3) button(best, "link", "all " + data.findings.length, () => openTab("findings", true));
  make(best, "h3", "", "Sites with the most calls");
  for (const site of [...sites].sort((a, b) => b.now[0] - a.now[0]).slice(0, 6)) {
    const line = make(best, "div", "call");
    make(line, "span", "share", percent(site.now[0], totals.now[0]));
    siteLink(line, site);
  }
  const over = make(columns, "div");
  make(over, "h3", "", "Live bytes over time");
  if (!timeline) return void make(over, "p", "soft", "No block was live at any time.");
  listens(drawChart(over));
  button(over, "link", "select a span", () => openTab("timeline", true));
}

function drawThreads(panel) {
  make(panel, "p", "soft", "A thread's button shows its calls alone in the sites, the flame graph, callers and callees."
    + " These sums are of the whole run.");
  const titles = ["calls", "bytes", "frees", "of others' blocks", "live at end"];
  const body = table(panel, "Threads", [["thread", "words"], ...titles.map((title) => [title, ""])]);
  data.threads.forEach((sums, thread) => {
    const row = make(body, "tr", state.part?.thread === thread ? "chosen" : "");
    const cell = make(row, "th", "words");
    cell.scope = "row";
    button(cell, "link", threadName(sums), () => {
      state.part = state.part?.thread === thread ? null : { thread };
      refresh();
    }).ariaPressed = state.part?.thread === thread;
    for (const figure of sums.slice(2)) make(row, "td", "", grouped(figure));
  });
  const more = data.processes.reduce((all, process) => all + process.threads, 0) - data.threads.length;
  if (more > 0) make(panel, "p", "soft", counted(more, "thread") + " with fewer calls, or none");
}

function drawSizes(panel) {
  make(panel, "p", "soft", "Of the whole run: sizes are not told apart by time or thread.");
  const titles = [["size in bytes", ""], ["calls", ""], ["", "bars"], ["bytes", ""], ["", "bars"]];
  const body = table(panel, "Sizes", titles);
  const most = [2, 3].map((key) => data.sizes.reduce((sum, row) => Math.max(sum, row[key]), 1));
  for (const size of data.sizes) {
    const row = make(body, "tr");
    make(row, "th", "", size[0] === size[1] ? size[0] : size[0] + "–" + size[1]).scope = "row";
    for (const key of [2, 3]) {
      make(row, "td", "", grouped(size[key]));
      make(make(row, "td", "bars"), "div", "bar").style.width = size[key] * 100 / most[key - 2] + "%";
    }
  }
}

// Copies, system calls or processor time. Its measure is then that of callers and callees.
function drawTables(panel, id, measure) {
  make(panel, "p", "soft", "Of the whole run: they are not told apart by time or thread.");
  for (const one of data.tables.filter((one) => one.id === id)) {
    if (one.title) make(panel, "h3", "", one.title);
    for (const note of one.notes) make(panel, "p", "soft", note);
    const titles = [["function, line", "words"], ...one.columns.map((title) => [title, ""])];
    const body = table(panel, one.title || views.find((view) => view.id === id).title, titles);
    for (const line of one.rows) {
      const [title, place] = [data.names[line.name], data.names[line.place]];
      if (!matches(title, place)) continue;
      const chosen = line.node === null ? { name: title } : { node: line.node, title };
      const row = make(body, "tr", isChosen(chosen) ? "chosen" : "");
      const cell = make(row, "th", "words");
      cell.scope = "row";
      button(cell, "link name", title, () => {
        state.measure = Math.max(measures.findIndex((known) => known[0] === measure), 0);
        choose(chosen);
      }).ariaPressed = isChosen(chosen);
      lineAt(cell, place);
      for (const text of line.cells) make(row, "td", "", text);
    }
  }
}

function drawRecording(panel) {
  for (const line of data.symbols) make(panel, "p", "soft", line);
  const counters = table(panel, "Counters", [["counter", "words"], ["", ""]]);
  for (const [title, value] of data.counters) {
    const row = make(counters, "tr");
    make(row, "th", "words", title).scope = "row";
    make(row, "td", "", grouped(value));
  }
  const titles = ["calls", "bytes", "at peak"].map((title) => [title, ""]);
  const body = table(panel, "Process images", [["process", "words"], ...titles, ["command", "words"]]);
  for (const process of data.processes) {
    const row = make(body, "tr");
    make(row, "th", "words", String(process.pid)).scope = "row";
    for (const figure of process.figures) make(row, "td", "", grouped(figure));
    make(row, "td", "words name", process.command);
  }
}

const tables = (id, title, measure) => ({
  id, title, draw: (panel) => drawTables(panel, id, measure), isThere: data.tables.some((table) => table.id === id),
});
const views = [
  { id: "summary", title: "Summary", draw: drawSummary },
  { id: "findings", title: "Findings", draw: drawFindings, isThere: data.findings.length > 0 },
  { id: "sites", title: "Sites", draw: drawSites },
  { id: "flame", title: "Flame graph", draw: drawFlame },
  { id: "timeline", title: "Timeline", draw: drawTimeline, isThere: timeline !== null },
  tables("copies", "Copies", "bytes copied"),
  tables("syscalls", "System calls", "time within system calls"),
  tables("cpu", "Processor time", "processor time"),
  { id: "threads", title: "Threads", draw: drawThreads, isThere: data.threads.length > 1 },
  { id: "sizes", title: "Sizes", draw: drawSizes, isThere: data.sizes.length > 0 },
  { id: "recording", title: "Recording", draw: drawRecording },
].filter((view) => view.isThere !== false);

function build() {
  drawHead(make(document.body, "header"));
  const bar = make(document.body, "div", "top");
  const list = make(bar, "nav");
  list.role = "tablist";
  list.ariaLabel = "Views";
  const tools = make(bar, "div", "tools");
  const search = make(tools, "input");
  search.type = "search";
  search.ariaLabel = search.placeholder = "search functions, files, callers";
  search.value = state.filter;
  search.addEventListener("input", () => {
    state.filter = search.value;
    refresh();
  });
  const measure = make(tools, "select");
  measure.ariaLabel = "measure of the flame graph, callers and callees";
  measures.forEach(([title], index) => (make(measure, "option", "", title).value = index));
  measure.addEventListener("change", () => {
    state.measure = Number(measure.value);
    if (KEYS[state.measure]) state.sort = KEYS[state.measure];
    refresh();
  });
  const chips = make(tools, "div", "chips");
  chips.role = "status";
  const main = make(document.body, "main");
  const all = make(main, "div", "views");
  for (const view of views) {
    view.tab = button(list, "", view.title, () => openTab(view.id));
    Object.assign(view.tab, { id: "tab-" + view.id, role: "tab" });
    view.tab.setAttribute("aria-controls", view.id);
    view.section = make(all, "section");
    Object.assign(view.section, { id: view.id, role: "tabpanel" });
    view.section.setAttribute("aria-labelledby", view.tab.id);
    make(view.section, "h2", "", view.title);
    view.panel = make(view.section, "div");
  }
  list.addEventListener("keydown", (event) => {
    const at = views.findIndex((view) => view.id === state.tab);
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: views.length - 1 }[event.key];
    if (views[to]) openTab(views[to].id, true);
  });
  const pane = make(main, "aside");
  pane.ariaLabel = "What was chosen";
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && document.activeElement.tagName !== "INPUT") {
      search.focus();
      event.preventDefault();
    }
  });
  return { measure, chips, pane };
}

// Draws anew; the keyboard stays where it was.
function redraw(place, draw) {
  const stops = () => [...place.querySelectorAll("button, summary, input, [tabindex='0']")];
  const at = stops().indexOf(document.activeElement);
  place.replaceChildren();
  draw(place);
  if (at >= 0) stops()[Math.min(at, stops().length - 1)]?.focus();
}

function drawChips() {
  built.chips.replaceChildren();
  const chip = (text, label, drop) => (button(built.chips, "boxed", text + " ✕", drop).ariaLabel = label);
  if (state.chosen) chip(chosenName(), "Chosen: " + chosenName() + ". Choose nothing", () => choose(null));
  if (state.part) {
    chip("only " + partName(state.part), "Only " + partName(state.part) + ". Show the whole run", () => {
      state.part = null;
      refresh();
    });
  }
}

function refresh() {
  sumUp();
  built.measure.value = state.measure;
  for (const view of views) view.isDrawn = false;
  drawChips();
  redraw(built.pane, drawChosen);
  openTab(state.tab);
}

function openTab(id, moves) {
  const open = views.find((view) => view.id === id) || views[0];
  const isNew = state.tab !== open.id;
  state.tab = open.id;
  for (const view of views) {
    const isOpen = view === open;
    view.tab.ariaSelected = isOpen;
    view.tab.tabIndex = isOpen ? 0 : -1;
    view.section.hidden = !isOpen;
  }
  redraw(open.panel, open.draw);
  open.isDrawn = true;
  if (isNew) redraw(built.pane, drawChosen);
  open.tab.scrollIntoView({ block: "nearest", inline: "nearest" });
  if (moves) open.tab.focus();
  writeAddress();
}

function choose(chosen) {
  state.chosen = chosen !== null && isChosen(chosen) ? null : chosen;
  refresh();
}

// On paper all views follow each other.
addEventListener("beforeprint", () => {
  for (const view of views) {
    view.section.hidden = false;
    if (!view.isDrawn) redraw(view.panel, view.draw);
    view.isDrawn = true;
  }
});
addEventListener("afterprint", () => openTab(state.tab));

readAddress();
const built = build();
refresh();
