//! The distinct names of marks, one table for all threads.
//!
//! Invariant: equal names have equal numbers.

use std::collections::HashMap;
use std::rc::Rc;

/// A name of this trace's marks; numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MarkId(pub u32);

#[derive(Debug, Default)]
pub(super) struct MarkNames {
    names: Vec<Rc<[u8]>>,
    ids: HashMap<Rc<[u8]>, MarkId>,
}

impl MarkNames {
    pub fn add(&mut self, name: &[u8]) -> MarkId {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let id = MarkId(self.names.len() as u32);
        let name: Rc<[u8]> = name.into();
        self.names.push(name.clone());
        self.ids.insert(name, id);
        id
    }

    pub fn name(&self, id: MarkId) -> &[u8] {
        self.names.get(id.0 as usize).map_or(b"", |name| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_have_equal_numbers() {
        let mut names = MarkNames::default();
        let request = names.add(b"request");
        let other = names.add(b"\xff\0");
        assert_eq!(names.add(b"request"), request);
        assert_ne!(other, request);
        assert_eq!(names.name(other), b"\xff\0");
        assert_eq!(names.name(MarkId(9)), b"");
    }
}
