//! Tables of columns side by side: what stands over each, and which one is at a place.

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
}
