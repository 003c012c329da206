//! Names of frames, for formats with one field for function and place.

use std::borrow::Cow;

use larder_base::printable::escape;

use crate::reading::resolve::ChainFrame;
use crate::reading::stacks::StackRow;

/// The function's name; without one, the module's in brackets, so that its unknown functions are one.
pub fn function(frame: &ChainFrame) -> Cow<'_, str> {
    match &frame.source.function {
        Some(function) => escape(&function.name),
        None => Cow::Owned(format!("[{}]", frame.module.name)),
    }
}

/// Stands in for a stack without frames.
pub const NO_STACK: &str = "[no stack]";

/// A row's stack in the collapsed form: outermost function first, separated by `;`.
pub fn folded(row: &StackRow) -> String {
    let names: Vec<String> = row
        .functions()
        .rev()
        .map(|f| foldable(&function(f)))
        .collect();
    if names.is_empty() {
        NO_STACK.to_owned()
    } else {
        names.join(";")
    }
}

/// Without `;`, which separates frames, and without a number after the last space, which would be read
/// as the line's value.
fn foldable(name: &str) -> String {
    let name = name.trim().replace(';', ":");
    match name.rsplit_once(' ') {
        Some((front, last)) if last.starts_with(|c: char| c.is_ascii_digit()) => {
            format!("{front}_{last}")
        }
        _ if name.is_empty() => "[no name]".to_owned(),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_end_its_frame_or_bring_a_value() {
        assert_eq!(foldable("a;b"), "a:b");
        assert_eq!(foldable("evil 12"), "evil_12");
        assert_eq!(foldable("evil 1 2.5"), "evil 1_2.5");
        assert_eq!(foldable(" "), "[no name]");
        assert_eq!(foldable("operator new[]"), "operator new[]");
    }
}
