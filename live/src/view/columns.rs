//! The columns of the table of sites: what each is called, shows and sorts by.

use clap::ValueEnum;
use larder_base::number::percent;
use larder_base::order;

use super::model::{Figures, SiteRow};
use crate::terminal::table::{self, GAP, number, size};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Column {
    /// Calls that allocate
    Calls,
    /// Bytes requested in all
    Bytes,
    /// Bytes live at the program's peak
    Peak,
    /// Bytes still live at the end
    Live,
    /// Blocks that ended before their thread allocated again
    Temporary,
    /// Blocks under 32 bytes
    Tiny,
    /// The name
    Site,
}

/// Of the share of what the table is sorted by, which stands before the columns.
const SHARE_WIDTH: usize = 7;
/// A narrower screen has no column but the one that it is sorted by, and the names.
const WIDTH_FOR_ALL: u16 = 100;

impl Column {
    /// From left to right.
    pub const ALL: [Self; 7] = [
        Self::Calls,
        Self::Bytes,
        Self::Peak,
        Self::Live,
        Self::Temporary,
        Self::Tiny,
        Self::Site,
    ];

    /// The column `steps` to the right; behind the last comes the first.
    pub fn beside(self, steps: usize) -> Self {
        Self::ALL[(self as usize + steps) % Self::ALL.len()]
    }

    /// The one that this key sorts by.
    pub fn of_key(key: char) -> Option<Self> {
        Some(match key {
            'C' => Self::Calls,
            'B' => Self::Bytes,
            'P' => Self::Peak,
            'L' => Self::Live,
            'T' => Self::Temporary,
            'Y' => Self::Tiny,
            'N' => Self::Site,
            _ => return None,
        })
    }

    fn title(self) -> &'static str {
        match self {
            Self::Calls => "CALLS",
            Self::Bytes => "BYTES",
            Self::Peak => "PEAK",
            Self::Live => "LIVE",
            Self::Temporary => "TEMP",
            Self::Tiny => "TINY",
            Self::Site => "SITE",
        }
    }

    /// 0: all that is left.
    fn width(self) -> usize {
        if self == Self::Site { 0 } else { 7 }
    }

    /// `None`: not known, or of the name.
    pub fn of(self, figures: &Figures) -> Option<u64> {
        match self {
            Self::Calls => Some(figures.calls),
            Self::Bytes => Some(figures.bytes),
            Self::Peak => figures.peak_bytes,
            Self::Live => Some(figures.live_bytes),
            Self::Temporary => figures.temporary,
            Self::Tiny => Some(figures.tiny),
            Self::Site => None,
        }
    }

    fn cell(self, site: &SiteRow) -> String {
        let figure = self.of(&site.figures);
        let text = match (self, figure) {
            (Self::Site, _) => format!("{}  {}", site.name, site.place),
            (_, None) => "?".to_owned(),
            (Self::Bytes | Self::Peak | Self::Live, Some(bytes)) => size(bytes as f64),
            (_, Some(count)) => number(count as f64),
        };
        table::aligned(&text, self.width())
    }

    /// Sorts descending by the figure, or ascending by the name. Equal ones keep their order.
    pub fn sort(self, rows: &mut [&SiteRow]) {
        match self {
            Self::Site => order::sort_by(rows, |a, b| a.name.cmp(&b.name)),
            _ => order::sort_by(rows, |a, b| self.of(&b.figures).cmp(&self.of(&a.figures))),
        }
    }
}

/// The columns of a screen of this width.
fn shown(width: u16, sort: Column) -> Vec<Column> {
    let mut columns = Column::ALL.to_vec();
    columns.retain(|column| width >= WIDTH_FOR_ALL || *column == sort || *column == Column::Site);
    columns
}

/// The column at a place of the screen.
pub fn at(x: u16, width: u16, sort: Column) -> Option<Column> {
    let x = usize::from(x).saturating_sub(SHARE_WIDTH + GAP.len());
    table::column_at(&shown(width, sort), Column::width, x as u16)
}

pub fn head(width: u16, sort: Column, reversed: bool) -> String {
    let titles = shown(width, sort).into_iter();
    let titles = titles.map(|it| table::title(it.title(), it.width(), it == sort, reversed));
    let cells: Vec<String> = std::iter::once(format!("{:>SHARE_WIDTH$}", "SHARE"))
        .chain(titles)
        .collect();
    cells.join(GAP)
}

/// With the share of what all sites have of the column that the table is sorted by.
pub fn row(site: &SiteRow, total: &Figures, width: u16, sort: Column) -> String {
    let figures = sort.of(&site.figures).zip(sort.of(total));
    let share = figures.map_or(String::new(), |(part, whole)| {
        format!("{:.1} %", percent(part, whole))
    });
    let columns = shown(width, sort).into_iter();
    let cells: Vec<String> = std::iter::once(format!("{share:>SHARE_WIDTH$}"))
        .chain(columns.map(|column| column.cell(site)))
        .collect();
    cells.join(GAP).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_analysis::reading::sites::SiteId;

    fn site(name: &str, calls: u64, peak_bytes: Option<u64>) -> SiteRow {
        SiteRow {
            id: SiteId(calls as usize),
            name: name.to_owned(),
            place: String::new(),
            figures: Figures {
                calls,
                peak_bytes,
                ..Figures::default()
            },
            stacks: Vec::new(),
        }
    }

    #[test]
    fn equal_sites_keep_their_order_and_unknown_ones_are_last() {
        let (a, b, c) = (
            site("z", 3, None),
            site("y", 2, Some(7)),
            site("x", 1, Some(7)),
        );
        let names = |column: Column| {
            let mut rows = vec![&a, &b, &c];
            column.sort(&mut rows);
            rows.iter().map(|row| &*row.name).collect::<String>()
        };
        assert_eq!(names(Column::Calls), "zyx");
        assert_eq!(names(Column::Peak), "yxz");
        assert_eq!(names(Column::Tiny), "zyx");
        assert_eq!(names(Column::Site), "xyz");
        assert_eq!(Column::Site.beside(1), Column::Calls);
        assert_eq!(Column::Calls.beside(6), Column::Site);
    }

    #[test]
    fn heads_stand_over_their_cells_and_are_found_there() {
        let row_of = |width, sort| {
            let total = site("", 200, None).figures;
            row(&site("main", 50, None), &total, width, sort)
        };
        let ends = |line: &str, text: &str| line[..line.find(text).unwrap()].chars().count();
        for (width, x) in [(120, 63), (80, 18)] {
            let head = head(width, Column::Calls, true);
            assert_eq!(ends(&head, "SITE"), x);
            assert_eq!(ends(&row_of(width, Column::Calls), "main"), x);
            assert_eq!(at(x as u16, width, Column::Calls), Some(Column::Site));
            assert_eq!(at(10, width, Column::Calls), Some(Column::Calls));
        }
        assert!(row_of(80, Column::Calls).starts_with(" 25.0 %"));
        assert!(row_of(80, Column::Peak).trim_start().starts_with("?  main"));
        assert_eq!(at(20, 120, Column::Calls), Some(Column::Bytes));
    }
}
