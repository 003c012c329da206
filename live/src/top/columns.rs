//! The columns of the table of sites: what each is called, shows and sorts by, on the screen and in
//! tables alike.

use clap::ValueEnum;
use larder_base::order;

use super::model::SiteRow;
use crate::terminal::table::{self, number, size};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Column {
    /// Bytes in use
    InUse,
    /// Growth since the start, or the mark
    Growth,
    /// Bytes allocated in a second
    Rate,
    /// Objects in use
    Objects,
    /// Samples in use, from which the other figures are estimated
    Samples,
    /// The name
    Site,
}

impl Column {
    /// From left to right.
    pub const ALL: [Self; 6] = [
        Self::InUse,
        Self::Growth,
        Self::Rate,
        Self::Objects,
        Self::Samples,
        Self::Site,
    ];

    /// The column `steps` to the right; behind the last comes the first.
    pub fn beside(self, steps: usize) -> Self {
        let at = Self::ALL.iter().position(|column| *column == self);
        Self::ALL[(at.unwrap_or(0) + steps) % Self::ALL.len()]
    }

    fn title(self) -> &'static str {
        match self {
            Self::InUse => "IN USE         95 %",
            Self::Growth => "GROWTH ",
            Self::Rate => "RATE/s",
            Self::Objects => "OBJECTS",
            Self::Samples => "SAMPLES",
            Self::Site => "SITE",
        }
    }

    /// 0: all that is left.
    pub fn width(self) -> usize {
        match self {
            Self::InUse => 20,
            Self::Growth => 9,
            Self::Site => 0,
            _ => 8,
        }
    }

    /// With an arrow if the table is sorted by this column.
    pub fn header(self, sorted: bool, reversed: bool) -> String {
        table::title(self.title(), self.width(), sorted, reversed)
    }

    pub fn cell(self, site: &SiteRow) -> String {
        let text = match self {
            Self::InUse => {
                let (low, high) = (site.interval.low, site.interval.high);
                format!(
                    "{:>6} {:>6}-{:<6}",
                    size(site.in_use),
                    size(low),
                    size(high)
                )
            }
            Self::Growth => growth(site),
            Self::Rate => site.rate.map_or_else(|| "-".to_owned(), size),
            Self::Objects => number(site.objects),
            Self::Samples => number(site.samples),
            Self::Site => format!("{}  {}", site.name, site.place),
        };
        table::aligned(&text, self.width())
    }

    /// Sorts descending by the figure, or ascending by the name.
    pub fn sort(self, rows: &mut [&SiteRow]) {
        let key: fn(&SiteRow) -> f64 = match self {
            Self::InUse => |row| row.in_use,
            Self::Growth => |row| row.growth.bytes,
            Self::Rate => |row| row.rate.unwrap_or(0.0),
            Self::Objects => |row| row.objects,
            Self::Samples => |row| row.samples,
            Self::Site => {
                return order::sort_by(rows, |a, b| (&a.name, a.id.0).cmp(&(&b.name, b.id.0)));
            }
        };
        // Equal rows keep their order from one snapshot to the next.
        order::sort_by(rows, |a, b| {
            key(b).total_cmp(&key(a)).then(a.id.0.cmp(&b.id.0))
        });
    }
}

/// A star marks significant growth.
fn growth(site: &SiteRow) -> String {
    let star = if site.growth.is_significant() {
        "*"
    } else {
        " "
    };
    format!("{}{star}", signed(site.growth.bytes))
}

pub fn signed(bytes: f64) -> String {
    let sign = match bytes.round() {
        rounded if rounded > 0.0 => "+",
        rounded if rounded < 0.0 => "-",
        _ => "",
    };
    format!("{sign}{}", size(bytes.abs()))
}

#[cfg(test)]
mod tests {
    use super::super::model::tests::site;
    use super::*;

    #[test]
    fn growth_has_a_sign() {
        assert_eq!(signed(-2048.0), "-2.0K");
        assert_eq!(signed(0.2), "0");
    }

    #[test]
    fn headers_stand_over_their_cells() {
        let row = site(1, "main", 5e6, 1e6);
        for column in Column::ALL {
            if column == Column::Site {
                continue;
            }
            for (sorted, reversed) in [(false, false), (true, false), (true, true)] {
                let header = column.header(sorted, reversed);
                assert_eq!(header.chars().count(), column.width(), "{header}");
            }
            assert_eq!(column.cell(&row).chars().count(), column.width());
        }
    }

    #[test]
    fn sorting_is_by_the_column_and_steady() {
        let (a, b, c) = (
            site(1, "b", 5e6, 1e6),
            site(2, "a", 9e6, 1e6),
            site(3, "c", 5e6, 2e6),
        );
        let names = |column: Column| {
            let mut rows = vec![&c, &b, &a];
            column.sort(&mut rows);
            rows.iter().map(|row| &*row.name).collect::<String>()
        };
        assert_eq!(names(Column::InUse), "abc");
        assert_eq!(names(Column::Growth), "cba");
        assert_eq!(names(Column::Site), "abc");
        assert_eq!(Column::Site.beside(1), Column::InUse);
        assert_eq!(Column::InUse.beside(5), Column::Site);
    }
}
