//! Calls of a line in relation to the work: the program's own marks, and recorded system calls.

use larder_base::number::{counted, grouped};
use larder_base::printable;

use super::facts::{ImageFacts, Site};
use crate::reading::work::Io;

/// The least number of passes for a rate.
pub const FEWEST_REPEATS: u64 = 8;
const MARKS_SHOWN: usize = 3;

/// A line's calls for each system call of its function.
pub fn of_site(site: &Site, calls: u64) -> Option<String> {
    let (call, count) = most_frequent(site.io.as_deref()?)?;
    Some(format!(
        "{} for each of the {} that {} makes",
        ratio(calls, count),
        counted(count, call),
        site.function_name()
    ))
}

/// Allocations for each mark, system call and MiB.
pub fn of_all(image: &ImageFacts) -> Vec<String> {
    let calls = image.allocations;
    let marks = image.marks.ranked().into_iter().take(MARKS_SHOWN);
    let mut lines: Vec<String> = marks
        .filter(|(_, count)| *count >= FEWEST_REPEATS)
        .map(|(name, count)| {
            let name = printable::escape_bytes(name);
            format!(
                "{} allocations a {name} ({})",
                ratio(calls, count),
                grouped(count)
            )
        })
        .collect();
    let moved = image.io.read_bytes.saturating_add(image.io.written_bytes);
    if moved >= 1 << 20 {
        lines.push(format!(
            "{} allocations for each MiB read or written ({} MiB)",
            ratio(calls, moved >> 20),
            grouped(moved >> 20)
        ));
    }
    lines
}

fn most_frequent(io: &Io) -> Option<(&'static str, u64)> {
    let most = io.calls.iter().max_by_key(|(_, count)| **count)?;
    (*most.1 >= FEWEST_REPEATS).then(|| (most.0.name(), *most.1))
}

pub fn ratio(part: u64, whole: u64) -> String {
    let ratio = part as f64 / whole.max(1) as f64;
    match ratio {
        ..0.1 => format!("{ratio:.4}"),
        0.1..10.0 => format!("{ratio:.2}"),
        _ => grouped(ratio.round() as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::ratio;

    #[test]
    fn rates_have_the_figures_that_matter() {
        assert_eq!(ratio(32_772, 32_772), "1.00");
        assert_eq!(ratio(1, 4_000), "0.0003");
        assert_eq!(ratio(1_000_000, 7), "142,857");
        assert_eq!(ratio(1, 0), "1.00");
    }
}
