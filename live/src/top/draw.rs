//! Draws the model as the view selects it, and notes there where. Does not depend on the terminal.

use larder_base::number::counted;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::Paragraph;

use super::columns::Column;
use super::graph::{self, History};
use super::model::Model;
use super::text;
use super::view::{Page, View};
use crate::terminal::page;

/// A screen with fewer lines does not show the kinds.
const LINES_FOR_KINDS: u16 = 18;
/// Of a kind, with the gap behind it.
const KIND_WIDTH: u16 = 37;
const KINDS_MARGIN: u16 = 4;
const BAR_WIDTH: usize = 50;

const HELP: &str = " Up Down j k PgUp PgDn Home End   move
 Enter       the stacks of the selected site, and back
 F6 > <      sort by the next column, the one before
 M G P N     sort by bytes in use, growth, rate, name
 I           reverse the order
 F4 / \\      filter by name or place; Enter keeps it, Esc clears it
 Space p Z   pause, continue
 r           count growth from now
 t H         threads' heaps, and back
 F1 ? h      this help, and back
 ^L          redraw the screen
 ^Z          suspend
 F10 q ^C    quit
 Wheel       scroll
 Click       on a head: sort by it, again: reverse; on a site: select, again: its stacks
             Shift and the mouse select text in most terminals

 Graph       since this screen began: RSS in blue, objects in use in green
 IN USE      what the site holds, estimated by sampling, and the bounds that contain it
             in 19 of 20 cases
 GROWTH      since the start of this screen or the last r; * marks significant growth
 RATE/s      bytes allocated in a second since the last snapshot
 RSS         what the process has in memory: \u{2588} objects in use, \u{2592} waste of the heap,
             \u{2591} all beside the heap
 Waste       memory that no object uses, by kind: in memory, of what is mapped";

/// What does not come from the model.
pub struct Extra<'a> {
    /// Of the site whose page is shown.
    pub stacks: &'a [String],
    /// Why the last snapshot failed.
    pub trouble: Option<&'a str>,
    pub history: &'a History,
}

pub fn draw(frame: &mut Frame, model: &Model, view: &mut View, extra: &Extra<'_>) {
    let area = frame.area();
    let head = head(model, area, extra);
    let [title, graph, top, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(graph::rows(area.height)),
        Constraint::Length(head.len().try_into().unwrap_or(u16::MAX)),
        Constraint::Min(2),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(Line::from(text::title(model)).bold(), title);
    extra.history.draw(frame, graph);
    frame.render_widget(Paragraph::new(head), top);
    let drawn = match view.page {
        Page::Sites => &mut view.list.drawn,
        _ => &mut view.text,
    };
    (drawn.head, drawn.height) = (body.y, usize::from(body.height.saturating_sub(1)));
    let page = match view.page {
        Page::Sites => sites(model, view),
        Page::Threads => {
            let lines = text::thread_lines(model);
            page::text(text::threads_header(), &lines, area.width, &mut view.text)
        }
        Page::Help => {
            let lines: Vec<String> = HELP.lines().map(str::to_owned).collect();
            page::text(
                " KEYS AND COLUMNS".to_owned(),
                &lines,
                area.width,
                &mut view.text,
            )
        }
        Page::Stacks(id) => {
            let site = model.sites.iter().find(|site| site.id == id);
            let title = site.map_or_else(
                || "this site is gone".to_owned(),
                |site| text::line(|column| column.cell(site)),
            );
            page::text(title, extra.stacks, area.width, &mut view.text)
        }
    };
    frame.render_widget(Paragraph::new(page), body);
    frame.render_widget(Paragraph::new(foot_line(model, view)), foot);
}

/// What stands between the graph and the page.
fn head<'a>(model: &Model, area: Rect, extra: &Extra<'a>) -> Vec<Line<'a>> {
    let mut lines = vec![
        bar(model),
        Line::from(text::memory(model)),
        Line::from(text::profile(model)),
    ];
    lines.extend(
        text::notes(model)
            .into_iter()
            .map(|note| note.yellow().into()),
    );
    if let Some(trouble) = extra.trouble {
        lines.push(Line::from(format!("no new figures: {trouble}")).red());
    }
    if area.height >= LINES_FOR_KINDS {
        let kinds = text::kinds(model);
        let beside = usize::from(area.width.saturating_sub(KINDS_MARGIN) / KIND_WIDTH).clamp(1, 3);
        let rows = kinds.len().div_ceil(beside);
        for row in 0..rows {
            let cells = kinds.iter().skip(row).step_by(rows);
            let cells: Vec<String> = cells.map(|kind| format!("{kind:35}")).collect();
            let label = if row == 0 { "Waste " } else { "      " };
            lines.push(format!("{label}{}", cells.join("  ").trim_end()).into());
        }
    }
    lines
}

/// Parts of RSS: objects in use, the heap's waste, the rest.
fn bar(model: &Model) -> Line<'static> {
    let rss = model.snapshot.memory.rss.max(1) as f64;
    let mut spans = vec![Span::raw("    [")];
    let (mut sum, mut drawn) = (0.0, 0);
    let styles = [
        ("\u{2588}", Color::Green),
        ("\u{2592}", Color::Yellow),
        ("\u{2591}", Color::Blue),
    ];
    for (bytes, (glyph, color)) in text::parts(model).into_iter().zip(styles) {
        sum += bytes as f64;
        let end = ((sum / rss).min(1.0) * BAR_WIDTH as f64).round() as usize;
        spans.push(Span::styled(glyph.repeat(end - drawn), color));
        drawn = end;
    }
    spans.push(Span::raw(format!("{}]", " ".repeat(BAR_WIDTH - drawn))));
    Line::from(spans)
}

fn sites(model: &Model, view: &mut View) -> Text<'static> {
    let rows = view.rows(model);
    let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
    let at = view.list.position(&ids);
    view.list.drawn.show(at, rows.len());
    let lines = rows.iter().map(|row| {
        let style = match row.growth.is_significant() && row.growth.bytes > 0.0 {
            true => Style::new().fg(Color::Red),
            false => Style::new(),
        };
        (text::line(|column: Column| column.cell(row)), style)
    });
    let mut text = page::list(text::header(view), lines, at, &view.list.drawn);
    if rows.is_empty() {
        text.push_line("no site".dim());
    }
    text
}

fn foot_line(model: &Model, view: &View) -> Line<'static> {
    if view.filter.is_typing {
        return Line::from(view.filter.prompt());
    }
    let mut spans = page::keys(&[
        ("F1", "Help"),
        ("F4", "Filter"),
        ("F6", "Sort"),
        ("Enter", "Stack"),
        ("t", "Threads"),
        ("r", "Mark"),
        ("p", "Pause"),
        ("F10", "Quit"),
    ]);
    spans.push(Span::raw(format!(
        "  {}{}",
        counted(view.rows(model).len() as u64, "site"),
        view.filter.describe()
    )));
    if view.is_paused {
        spans.push("  PAUSED".yellow().bold());
    }
    Line::from(spans)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crossterm::event::KeyCode;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::model::tests::{model, site};
    use super::*;

    static EMPTY: History = History::new();
    const NOTHING: Extra = Extra {
        stacks: &[],
        trouble: None,
        history: &EMPTY,
    };

    /// The lines of a screen of this size.
    fn drawn(model: &Model, view: &mut View, extra: &Extra<'_>, size: (u16, u16)) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
        terminal
            .draw(|frame| {
                draw(frame, model, view, extra);
            })
            .unwrap();
        let buffer = terminal.backend().buffer();
        let lines = buffer.content().chunks(usize::from(size.0));
        lines
            .map(|line| line.iter().map(|cell| cell.symbol()).collect::<String>())
            .map(|line| line.trim_end().to_owned())
            .collect()
    }

    fn view() -> View {
        View::new(Column::InUse, "", false)
    }

    #[test]
    fn a_screen_has_memory_waste_sites_and_keys() {
        let mut model = model(vec![
            site(1, "parse", 3e6, 0.0),
            site(2, "cache_insert", 9e6, 1e6),
        ]);
        model.sites[0].rate = None;
        let lines = drawn(&model, &mut view(), &NOTHING, (100, 18));
        let expected = [
            "larder top: process 4711 (server) on Larder 0.1.0, watched for 0:01:23, growth since 0:00:40 ago",
            "    [██████████████████████████████▒▒▒▒▒▒▒▒▒▒░░░░░░░░░░]",
            "RSS 100.0M: in use 60.0M (60 %), waste of the heap 20.0M (20 %), beside the heap 20.0M (20 %)",
            "Profile: 57.2M in use (95 %: 51.5M-62.9M), growth +976.6K, 488.3K/s allocated, 114 samples in use",
            "Waste free in slabs       20.0M of  30.0M  page heap, dirty        0 of      0",
            "      slabs, never used       0 of      0  page heap, clean        0 of      0",
        ];
        assert_eq!(lines[..6], expected);
        let table = [
            "▼IN USE 95 %  GROWTH   RATE/s  OBJECTS  SAMPLES  SITE",
            "  8.6M   7.7M-9.4M    +976.6K*  488.3K   140.6K       17  cache_insert  src/cache_insert.c:2",
            "  2.9M   2.6M-3.1M            0        -    46.9K        6  parse  src/parse.c:1",
        ];
        for (line, cells) in lines[9..].iter().zip(&table) {
            let words = |text: &str| {
                text.split_whitespace()
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            };
            assert_eq!(words(line), words(cells));
        }
        let foot = &lines[17];
        assert!(
            foot.starts_with("F1Help F4Filter F6Sort") && foot.ends_with("2 sites"),
            "{foot}"
        );
    }

    #[test]
    fn a_small_screen_keeps_the_sites_and_the_tiniest_does_not_panic() {
        let sites = (0..50).map(|i| site(i, "f", 1e6 * (50 - i) as f64, 0.0));
        let (model, mut view) = (model(sites.collect()), view());
        let lines = drawn(&model, &mut view, &NOTHING, (80, 10));
        assert!(
            lines[4].contains("IN USE") && lines[5].ends_with("src/f.c:0"),
            "{lines:#?}"
        );
        let _ = view.press(KeyCode::End, &model);
        let lines = drawn(&model, &mut view, &NOTHING, (80, 10));
        assert!(lines[8].ends_with("src/f.c:49"), "{lines:#?}");
        for size in [(1, 1), (3, 2), (80, 1), (1, 60), (300, 100)] {
            for page in [Page::Sites, Page::Threads, Page::Help] {
                view.page = page;
                drawn(&model, &mut view, &NOTHING, size);
            }
        }
    }

    #[test]
    fn the_other_pages_are_drawn_and_scroll_to_their_end() {
        let (model, mut view) = (model(vec![site(1, "parse", 3e6, 0.0)]), view());
        view.page = Page::Threads;
        let lines = drawn(&model, &mut view, &NOTHING, (100, 24)).join("\n");
        assert!(
            lines.contains("REFILLS/s") && lines.contains("4712 worker"),
            "{lines}"
        );
        // More in the threads' slabs than in all: no sum wraps.
        let torn = lines.lines().find(|line| line.ends_with("in full slabs"));
        assert!(
            torn.is_some_and(|line| line.starts_with("       0  ")),
            "{lines}"
        );
        view.page = Page::Stacks(model.sites[0].id);
        let stacks: Vec<String> = (0..40).map(|i| format!("frame {i}")).collect();
        let extra = Extra {
            stacks: &stacks,
            trouble: Some("the list of sites"),
            history: &EMPTY,
        };
        let _ = view.press(KeyCode::End, &model);
        let lines = drawn(&model, &mut view, &extra, (100, 24));
        assert_eq!(lines[22], "frame 39");
        assert!(
            lines
                .join("\n")
                .contains("no new figures: the list of sites")
        );
        view.page = Page::Help;
        let lines = drawn(&model, &mut view, &NOTHING, (100, 40)).join("\n");
        assert!(lines.contains("F10 q ^C    quit"), "{lines}");
    }

    #[test]
    fn typing_and_filters_are_shown() {
        let (model, mut view) = (model(vec![site(1, "parse", 3e6, 0.0)]), view());
        for code in ['/', 'x', '\u{202e}'] {
            let _ = view.press(KeyCode::Char(code), &model);
        }
        let foot = |view: &mut View| drawn(&model, view, &NOTHING, (120, 24)).pop().unwrap();
        let text = foot(&mut view);
        assert!(text.starts_with("Filter: x\\u{202e}_"), "{text}");
        let _ = view.press(KeyCode::Enter, &model);
        let _ = view.press(KeyCode::Char('p'), &model);
        let text = foot(&mut view);
        assert!(
            text.contains("0 sites with") && text.ends_with("PAUSED"),
            "{text}"
        );
    }

    #[test]
    fn the_graph_has_the_rows_that_a_screen_can_spare() {
        let (mut model, mut view) = (model(vec![site(1, "parse", 3e6, 0.0)]), view());
        let mut history = History::new();
        for seconds in 0..60 {
            model.watched = Duration::from_secs(seconds);
            model.snapshot.memory.rss = (seconds + 1) << 20;
            history.add(&model);
        }
        let extra = Extra {
            history: &history,
            ..NOTHING
        };
        for (size, rows) in [((100, 60), 8), ((100, 24), 5), ((100, 23), 0), ((20, 5), 0)] {
            let lines = drawn(&model, &mut view, &extra, size);
            let is_dot = |c: char| ('\u{2801}'..='\u{28ff}').contains(&c);
            let with_dots = lines.iter().filter(|line| line.contains(is_dot));
            assert_eq!(with_dots.count(), rows, "{lines:#?}");
            if rows > 0 {
                assert!(lines[1].starts_with("60.0M"), "{lines:#?}");
                assert!(lines[rows].trim_start().starts_with("0│"), "{lines:#?}");
                assert!(lines[rows + 1].starts_with("    ["), "{lines:#?}");
            }
        }
    }
}
