//! What Rust drops where a block is freed: the objects that it was a part of, as the names of the functions on the
//! stack of a free say. Of one free of each origin.

use super::facts::Site;

/// Objects of Rust's library: what they hold belongs to the object that they are in.
const LIBRARY: &[&str] = &["alloc::", "core::", "std::", "hashbrown::", "[", "("];
/// Objects that hold what they have in a block of its own.
const POINTERS: &[&str] = &["alloc::boxed::Box<", "alloc::sync::Arc<", "alloc::rc::Rc<"];

impl Site {
    /// The types that were dropped, from the block outward, up to the function within whose call it lives.
    fn dropped(&self) -> impl Iterator<Item = &str> {
        let owner = self.owner.iter();
        let frees = owner.flat_map(|owner| {
            let frames = owner.frees_frame.map_or(0, |frame| frame + 1);
            owner.frees.iter().take(frames)
        });
        let names = frees.flat_map(|frames| frames.iter());
        let names = names.filter_map(|frame| frame.source.function.as_ref());
        names.filter_map(|function| dropped_by(&function.full))
    }

    /// The innermost object of another package than Rust's library that it was a part of.
    pub fn part_of(&self) -> Option<&str> {
        self.dropped().find(|name| !begins(name, LIBRARY))
    }

    pub fn is_part(&self) -> bool {
        self.part_of().is_some()
    }

    /// Whether it went with the last reference to an object that counts them: others may have it as long as that
    /// one.
    pub fn is_shared(&self) -> bool {
        let is_counted = matches!(self.container, Some("Rc" | "Arc"));
        !is_counted && self.dropped().any(|name| begins(name, &POINTERS[1..]))
    }

    /// Whether it was a `Box` of any type that has a trait, or in one.
    pub fn is_of_any_type(&self) -> bool {
        self.dropped()
            .any(|name| name.starts_with("alloc::boxed::Box<dyn "))
    }

    /// Whether it was a part of an object that is in another of its own type.
    pub fn is_in_tree(&self) -> bool {
        is_tree(self.dropped())
    }

    /// Whether it was a vector in an object of the type of its elements, which cannot hold them itself.
    pub fn holds_its_own_type(&self) -> bool {
        holds_its_own(self.dropped())
    }
}

fn begins(name: &str, with: &[&str]) -> bool {
    with.iter().any(|start| name.starts_with(start))
}

/// The type that a function drops.
fn dropped_by(function: &str) -> Option<&str> {
    const DROP: &str = "core::ptr::drop_in_place";
    const LAST: &str = "::drop_slow";
    let dropped = function.strip_prefix(DROP);
    let dropped = dropped.and_then(|rest| {
        let rest = rest.trim_start_matches("::").strip_prefix('<')?;
        rest.strip_suffix('>')
    });
    let last = || Some(function.strip_suffix(LAST)?.trim_start_matches('<'));
    dropped.or_else(last)
}

fn is_tree<'a>(dropped: impl Iterator<Item = &'a str>) -> bool {
    let mut known: Vec<&str> = Vec::new();
    let mut own = dropped.filter(|name| !begins(name, LIBRARY));
    own.any(|name| {
        let again = known.contains(&name);
        known.push(name);
        again
    })
}

fn holds_its_own<'a>(mut dropped: impl Iterator<Item = &'a str>) -> bool {
    const VECTOR: &str = "alloc::vec::Vec<";
    let vector = dropped.find_map(|name| name.strip_prefix(VECTOR)?.strip_suffix('>'));
    let mut around = dropped.take_while(|name| !begins(name, POINTERS));
    vector.is_some_and(|element| around.any(|name| name == element))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_types_that_functions_drop() {
        for (function, expected) in [
            ("core::ptr::drop_in_place<a::B<c::D>>", Some("a::B<c::D>")),
            ("core::ptr::drop_in_place::<a::B>", Some("a::B")),
            (
                "alloc::sync::Arc<T,A>::drop_slow",
                Some("alloc::sync::Arc<T,A>"),
            ),
            (
                "<alloc::sync::Arc<T>>::drop_slow",
                Some("alloc::sync::Arc<T>>"),
            ),
            ("core::mem::drop", None),
            ("core::ptr::drop_in_place", None),
        ] {
            assert_eq!(dropped_by(function), expected);
        }
    }

    #[test]
    fn an_object_within_one_of_its_type_is_a_tree() {
        let map = "alloc::collections::btree::map::BTreeMap<alloc::string::String,a::Value>";
        let tree = [
            "alloc::string::String",
            map,
            "a::Value",
            "[a::Value]",
            "a::Value",
        ];
        assert!(is_tree(tree.into_iter()));
        assert!(!is_tree(tree[..3].iter().copied()));
        let rows = ["alloc::vec::Vec<u8>", "alloc::vec::Vec<u8>", "a::Table"];
        assert!(!is_tree(rows.into_iter()));
    }

    #[test]
    fn a_value_cannot_hold_values_of_its_type() {
        let list = ["alloc::vec::Vec<a::Value>", "a::Value"];
        assert!(holds_its_own(list.into_iter()));
        let counted = [
            "alloc::vec::Vec<a::Value>",
            "alloc::sync::Arc<T,A>",
            "a::Value",
        ];
        assert!(!holds_its_own(counted.into_iter()));
        assert!(!holds_its_own(
            ["alloc::vec::Vec<u64>", "a::Value"].into_iter()
        ));
    }
}
