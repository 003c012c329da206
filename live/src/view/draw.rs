//! Draws the trace as the explorer selects it, and notes there where.

use larder_analysis::calls::{Direction, Step};
use larder_base::number::{counted, percent_of};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::Paragraph;

use super::branches::{Branch, Branches};
use super::columns;
use super::explorer::{Explorer, Page};
use super::model::Model;
use crate::terminal::page::{self, Drawn};
use crate::terminal::table::{number, size};

/// A lower screen has the title alone above its rows.
const LINES_FOR_HEAD: u16 = 12;
const MOST_NOTES: usize = 3;

pub const HELP: &str = " Up Down j k PgUp PgDn Home End   move
 Enter       the source and the stacks of the selected site, and back
 F6 > <      sort by the next column, the one before
 C B P L     sort by calls, bytes, bytes at the peak, bytes live at the end
 T Y N       sort by temporary blocks, tiny blocks, name
 I           reverse the order
 F4 / \\      filter by name or place; Enter keeps it, Esc clears it
 c e         callers of the selected function, callees
             Enter Space: open, close; Right + : open; Left - : close, or up
             c e there: of the function that is selected there
 f           what larder advise finds; Enter: the evidence and the cure
 Esc         back
 F1 ? h      this help, and back
 ^L          redraw the screen
 ^Z          suspend
 F10 q ^C    quit
 Wheel       scroll
 Click       on a head: sort by it, again: reverse; on a row: select, again: open
             Shift and the mouse select text in most terminals

 SHARE       of what all sites have of the column that the table is sorted by
 CALLS       calls that allocate
 BYTES       bytes requested in all
 PEAK        bytes live at the program's peak
 LIVE        bytes still live at the end
 TEMP        temporary: blocks that ended before their thread allocated again
 TINY        blocks under 32 bytes";

pub fn draw(frame: &mut Frame, shown: &mut Explorer) {
    let area = frame.area();
    shown.width = area.width;
    let head = head(&shown.model, area);
    let [top, body, foot] = Layout::vertical([
        Constraint::Length(head.len().try_into().unwrap_or(u16::MAX)),
        Constraint::Min(2),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(head), top);
    let place = |drawn: &mut Drawn| {
        (drawn.head, drawn.height) = (body.y, usize::from(body.height.saturating_sub(1)));
    };
    let page = match (shown.page, &mut shown.branches) {
        (Page::Sites, _) => {
            place(&mut shown.sites.drawn);
            sites(shown)
        }
        (Page::Tree, Some(branches)) => {
            place(&mut branches.list.drawn);
            tree(&shown.model, branches)
        }
        (Page::Findings, _) => {
            place(&mut shown.finding.drawn);
            findings(shown)
        }
        _ => {
            place(&mut shown.drawn);
            let text = &shown.text;
            page::text(
                text.title.clone(),
                &text.lines,
                area.width,
                &mut shown.drawn,
            )
        }
    };
    frame.render_widget(Paragraph::new(page), body);
    frame.render_widget(Paragraph::new(foot_line(shown)), foot);
}

fn head(model: &Model, area: Rect) -> Vec<Line<'static>> {
    let shown = match area.height < LINES_FOR_HEAD {
        true => 1,
        false => model.head.len(),
    };
    let mut lines: Vec<Line> = model.head[..shown]
        .iter()
        .cloned()
        .map(Line::from)
        .collect();
    lines[0] = lines[0].clone().bold();
    let notes = model
        .notes
        .iter()
        .take(if shown > 1 { MOST_NOTES } else { 0 });
    lines.extend(notes.map(|note| note.clone().yellow().into()));
    lines
}

fn sites(shown: &mut Explorer) -> Text<'static> {
    let ids = shown.ids();
    let at = shown.sites.position(&ids);
    shown.sites.drawn.show(at, ids.len());
    let (width, sort) = (shown.width, shown.sort);
    let head = columns::head(width, sort, shown.reversed);
    let total = &shown.model.total;
    let rows = shown.rows().into_iter();
    let rows = rows.map(|row| (columns::row(row, total, width, sort), Style::new()));
    let mut text = page::list(head, rows, at, &shown.sites.drawn);
    if ids.is_empty() {
        text.push_line("no site".dim());
    }
    text
}

fn tree(model: &Model, branches: &mut Branches) -> Text<'static> {
    let nodes = branches.nodes();
    let at = branches.list.position(&nodes);
    branches.list.drawn.show(at, nodes.len());
    let title = match branches.tree.direction {
        Direction::Callers => "CALLERS OF",
        Direction::Callees => "CALLEES OF",
    };
    let root = model.function_name(branches.root);
    let head = format!("  SHARE    CALLS    BYTES  {title} {root}");
    let rows = branches.rows().into_iter();
    let rows = rows.map(|row| (branch(model, branches, &row), Style::new()));
    page::list(head, rows, at, &branches.list.drawn)
}

fn branch(model: &Model, branches: &Branches, row: &Branch<'_>) -> String {
    let (mark, name) = match (row.step, branches.tree.direction) {
        (Step::Function(id), _) => (if row.is_open { "▾" } else { "▸" }, model.function_name(id)),
        (Step::End, Direction::Callers) => (" ", "[no caller]"),
        (Step::End, Direction::Callees) => (" ", "[its own code]"),
    };
    format!(
        "{:>5.1} %  {:>7}  {:>7}  {:indent$}{mark} {name}",
        percent_of(row.sums.calls, branches.tree.root().calls),
        number(row.sums.calls),
        size(row.sums.bytes),
        "",
        indent = 2 * row.level,
    )
}

fn findings(shown: &mut Explorer) -> Text<'static> {
    let title = " WHAT IS NEEDLESS, the most worth a change first".to_owned();
    if let Some(state) = shown.findings.state() {
        return page::text(title, &[state.to_owned()], shown.width, &mut shown.drawn);
    }
    let rows = shown.finding_rows();
    let at = shown.finding.position(&rows);
    shown.finding.drawn.show(at, rows.len());
    let lines = shown.findings.found().iter();
    let lines = lines.map(|finding| (finding.title.clone(), Style::new()));
    page::list(title, lines, at, &shown.finding.drawn)
}

fn foot_line(shown: &Explorer) -> Line<'static> {
    if shown.filter.is_typing {
        return Line::from(shown.filter.prompt());
    }
    let mut spans = page::keys(&[
        ("F1", "Help"),
        ("F4", "Filter"),
        ("F6", "Sort"),
        ("Enter", "Open"),
        ("c", "Callers"),
        ("e", "Callees"),
        ("f", "Findings"),
        ("F10", "Quit"),
    ]);
    spans.push(Span::raw(format!(
        "  {}{}",
        counted(shown.rows().len() as u64, "site"),
        shown.filter.describe()
    )));
    Line::from(spans)
}
