// The findings and the sites: lists from which one is chosen.

function findingOf(parent, finding, isWhole) {
  const box = make(parent, "article", "finding");
  const isSite = finding.site !== null;
  const title = make(box, "h3");
  if (isSite) {
    const { place } = sites[finding.site].frame;
    const press = button(title, "link", finding.title.replace(place, endOf(place)), () => choose({ site: finding.site }));
    press.ariaPressed = isChosen({ site: finding.site });
    if (isChosen({ site: finding.site })) box.classList.add("chosen");
  } else {
    title.textContent = finding.title;
  }
  if (isWhole && finding.source.length) make(box, "pre", "", finding.source.join("\n"));
  for (const line of isWhole ? finding.lines : finding.lines.slice(0, 1)) make(box, "p", "", line);
}

function drawFindings(panel) {
  make(panel, "p", "soft", "Of the whole run: what a part of it would save is not known.");
  const found = data.findings.filter((finding) => matches(finding.title, ...finding.source, ...finding.lines));
  for (const finding of found) findingOf(panel, finding, true);
}

function siteLink(parent, site) {
  const press = button(parent, "link name", site.frame.name, () => choose({ site: site.index }));
  press.ariaPressed = isChosen({ site: site.index });
  lineAt(parent, site.frame.place);
}

const ROWS = 25; // Sites shown until the reader asks for all.

function sortedSites() {
  const key = KEYS.indexOf(state.sort);
  const value = (site) => (key >= 0 ? site.now[key] : site.frame.name);
  const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  return sites.filter((site) => matches(site.text) && (!state.part || site.now[0] > 0))
    .sort((a, b) => (state.up ? 1 : -1) * order(value(a), value(b)) || b.now[0] - a.now[0]);
}

function sortHeading(cell, key, title) {
  if (state.sort === key) cell.ariaSort = state.up ? "ascending" : "descending";
  button(cell, "", title, () => {
    state.up = state.sort === key ? !state.up : key === "name";
    state.sort = key;
    state.measure = Math.max(KEYS.indexOf(key), 0);
    refresh();
    document.querySelector("#sites th[aria-sort] button").focus();
  });
}

function drawSites(panel) {
  const found = sortedSites();
  const count = make(panel, "p", "soft", grouped(found.length) + " of " + counted(sites.length, "site"));
  if (state.part) count.textContent += "; " + partNote(0) + ". The other columns are of the whole run, and soft.";
  const body = table(panel, "Sites", [["", "words"], ["share", ""], ...TITLES.map((_) => ["", ""])]);
  const heads = body.parentNode.tHead.rows[0].cells;
  sortHeading(heads[0], "name", "function, line");
  KEYS.forEach((key, index) => sortHeading(heads[index + 2], key, TITLES[index]));
  const key = Math.max(KEYS.indexOf(state.sort), 0);
  const figures = (row, now) => {
    make(row, "td", "", percent(now[key], totals.now[key]));
    now.forEach((figure, measure) => make(row, "td", follows(measure) ? "" : "soft", grouped(figure)));
  };
  const through = state.chosen?.name !== undefined
    && new Set(rows.filter((row) => placeOf(state.chosen, row.stack, row.site) >= 0).map((row) => row.site));
  for (const site of found.slice(0, state.all ? Infinity : ROWS)) {
    const isIt = isChosen({ site: site.index });
    const row = make(body, "tr", "site" + (isIt || (through && through.has(site)) ? " chosen" : ""));
    const cell = make(row, "th", "words");
    cell.scope = "row";
    const press = button(cell, "link name", site.frame.name, () => {});
    press.ariaPressed = isIt;
    lineAt(cell, site.frame.place);
    row.addEventListener("click", () => choose({ site: site.index }));
    figures(row, site.now);
  }
  if (data.folded > 0 && !state.filter) {
    const row = make(body, "tr", "folded soft");
    make(row, "td", "words", counted(data.folded, "other site") + " under " + data.share + " % of everything");
    figures(row, totals.folded);
  }
  if (found.length > ROWS && !state.all) {
    button(panel, "boxed", "show all " + grouped(found.length), () => {
      state.all = true;
      refresh();
    });
  }
}
