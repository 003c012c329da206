//! Tables of columns side by side: what stands over each, which one is at a place, and numbers that fit.

/// Between two columns.
pub const GAP: &str = "  ";

/// A text in a column of this width, at its right end; 0: the last column, of any width.
pub fn aligned(text: &str, width: usize) -> String {
    match width {
        0 => text.to_owned(),
        width => format!("{text:>width$}"),
    }
}

/// What stands over a column, with an arrow if the table is sorted by it.
pub fn title(title: &str, width: usize, sorted: bool, reversed: bool) -> String {
    let mark = match (sorted, reversed) {
        (false, _) => "",
        (true, false) => "▼",
        (true, true) => "▲",
    };
    // The mark takes the place of a blank of the title's.
    match title.strip_suffix(' ') {
        Some(title) if sorted => aligned(&format!("{title}{mark}"), width),
        _ => aligned(&format!("{mark}{title}"), width),
    }
}

/// The column of the screen's column `x`, with the gap behind it. The last one has the rest.
pub fn column_at<C: Copy>(columns: &[C], width: impl Fn(C) -> usize, x: u16) -> Option<C> {
    let mut end = 0;
    let found = columns.iter().find(|column| {
        end += width(**column) + GAP.len();
        usize::from(x) < end
    });
    found.or(columns.last()).copied()
}

/// Bytes in up to seven characters: 1.5M is 1.5 MiB.
pub fn size(bytes: f64) -> String {
    short(bytes, 1024.0)
}

/// A count: 1.5M is 1.5 million.
pub fn number(count: f64) -> String {
    short(count, 1000.0)
}

fn short(value: f64, step: f64) -> String {
    let mut value = value;
    for unit in ["", "K", "M", "G", "T", "P"] {
        let digits = usize::from(!unit.is_empty());
        if value < step - 0.05 {
            return format!("{value:.digits$}{unit}");
        }
        value /= step;
    }
    "?".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_reaches_to_the_next_one() {
        let found = |x| column_at(&[4, 5, 0], |width| width, x);
        for (x, column) in [(0, 4), (5, 4), (6, 5), (12, 5), (13, 0), (900, 0)] {
            assert_eq!(found(x), Some(column), "{x}");
        }
    }

    #[test]
    fn sizes_are_short() {
        for (bytes, text) in [
            (0.0, "0"),
            (1023.0, "1023"),
            (1024.0, "1.0K"),
            (1048570.0, "1.0M"),
            (1.5 * 1048576.0, "1.5M"),
            (1e15, "909.5T"),
            (f64::MAX, "?"),
            (f64::NAN, "?"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }
}
