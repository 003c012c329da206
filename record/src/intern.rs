//! A stream's definitions: from an address to a frame's number, from (parent node, address) to a node's,
//! and from (node, call) to a site's.
//!
//! Thread safety: owned by a stream. Invariants: numbers are assigned in order; used ≤ 3/4 × capacity, so
//! that a search ends; key 0 is an empty entry.

use larder_trace::codec::{Callees, FIRST_FRAME, FIRST_NODE, FIRST_SITE, SiteMemory, Tables};

use crate::hash;
use crate::memory::Pages;
use crate::table::Table;

#[derive(Clone, Copy)]
struct Node {
    /// The packed address, never 0 in a used place.
    address: u64,
    parent: u32,
    number: u32,
}

/// A node by its number, with its last children: most stacks continue like a recent one, and a search in
/// the tables above costs a cache miss a frame.
#[derive(Clone, Copy)]
struct Known {
    /// The packed address.
    address: u64,
    /// Nodes, the newest first; 0 for none. A byte of each address's hash.
    children: [u32; CHILDREN],
    tags: [u8; CHILDREN],
    /// The site with the call above it; 0 for none.
    site: u32,
}

const CHILDREN: usize = 4;
const CALL_SHIFT: u32 = 24;

const UNKNOWN: Known = Known {
    address: 0,
    children: [0; CHILDREN],
    tags: [0; CHILDREN],
    site: 0,
};

fn tag(address: u64) -> u8 {
    hash::top(address, 8) as u8
}

pub struct Interned {
    /// The numbers of frames, by packed address.
    frames: Table,
    next_frame: u32,
    callees: Pages<Callees>,
    nodes: Pages<Node>,
    node_mask: usize,
    next_node: u32,
    /// The numbers of sites, by node and call.
    sites: Table,
    next_site: u32,
    memories: Pages<SiteMemory>,
    /// By node, the roots included.
    known: Pages<Known>,
    /// The frame of each node.
    frame_of: Pages<u32>,
}

pub enum Found {
    Known(u32),
    /// It has a new number, and must be defined in the trace.
    New(u32),
    /// No memory.
    Full,
}

const FIRST_PLACES: usize = 256;

fn mix(a: u64, b: u64) -> usize {
    let hash = hash::spread(a ^ b.rotate_left(32));
    (hash ^ (hash >> 32)) as usize
}

impl Interned {
    pub const fn new() -> Self {
        Interned {
            frames: Table::new(),
            next_frame: FIRST_FRAME,
            callees: Pages::empty(),
            nodes: Pages::empty(),
            node_mask: 0,
            next_node: FIRST_NODE,
            sites: Table::new(),
            next_site: FIRST_SITE,
            memories: Pages::empty(),
            known: Pages::empty(),
            frame_of: Pages::empty(),
        }
    }

    pub fn next_frame(&self) -> u32 {
        self.next_frame
    }

    pub fn next_node(&self) -> u32 {
        self.next_node
    }

    pub fn next_site(&self) -> u32 {
        self.next_site
    }

    /// Starts again with the first number.
    pub fn forget(&mut self) {
        self.nodes.slice().fill(Node {
            address: 0,
            parent: 0,
            number: 0,
        });
        self.sites.forget();
        self.frames.forget();
        self.known.slice().fill(UNKNOWN);
        self.next_node = FIRST_NODE;
        self.next_site = FIRST_SITE;
        self.next_frame = FIRST_FRAME;
    }

    pub fn release(&mut self) {
        self.nodes.release();
        self.sites.release();
        self.memories.release();
        self.frames.release();
        self.callees.release();
        self.known.release();
        self.frame_of.release();
    }

    /// The number of this frame; assigns one if it has none.
    pub fn frame(&mut self, address: u64) -> Found {
        match self.frames.get(address) {
            Some(number) => Found::Known(number as u32),
            None => self.add_frame(address),
        }
    }

    fn add_frame(&mut self, address: u64) -> Found {
        let number = self.next_frame;
        let wanted = number as usize + 1;
        let room = wanted.next_power_of_two();
        if !self.callees.grow_to(wanted, room) || !self.frames.insert(address, number.into()) {
            return Found::Full;
        }
        self.next_frame = number + 1;
        Found::New(number)
    }

    /// The number of this node if it has one.
    #[inline]
    pub fn known_node(&mut self, parent: u32, address: u64) -> Option<u32> {
        let known = self.known.slice();
        let at = known.get(parent as usize)?;
        let tag = tag(address);
        for (child, of_child) in at.children.into_iter().zip(at.tags) {
            if of_child == tag
                && child != 0
                && known
                    .get(child as usize)
                    .is_some_and(|k| k.address == address)
            {
                return Some(child);
            }
        }
        let number = self.find_node(parent, address)?;
        self.note_child(parent, address, number);
        Some(number)
    }

    /// Replaces the oldest.
    fn note_child(&mut self, parent: u32, address: u64, number: u32) {
        if let Some(known) = self.known.slice().get_mut(parent as usize) {
            known.children.rotate_right(1);
            known.tags.rotate_right(1);
            (known.children[0], known.tags[0]) = (number, tag(address));
        }
    }

    fn find_node(&mut self, parent: u32, address: u64) -> Option<u32> {
        let mask = self.node_mask;
        let nodes = self.nodes.slice();
        let mut place = mix(address, u64::from(parent)) & mask;
        loop {
            let node = nodes.get(place)?;
            if node.address == address && node.parent == parent {
                return Some(node.number);
            }
            if node.address == 0 {
                return None;
            }
            place = (place + 1) & mask;
        }
    }

    /// Numbers an unknown node; `None` without memory.
    pub fn add_node(&mut self, parent: u32, address: u64, frame: u32) -> Option<u32> {
        let used = (self.next_node - FIRST_NODE) as usize;
        if self.node_mask == 0 || used * 4 >= (self.node_mask + 1) * 3 {
            self.grow_nodes()?;
        }
        let number = self.next_node;
        let wanted = number as usize + 1;
        let room = wanted.next_power_of_two();
        if !self.frame_of.grow_to(wanted, room) || !self.known.grow_to(wanted, room) {
            return None;
        }
        *self.frame_of.slice().get_mut(number as usize)? = frame;
        insert_node(
            self.nodes.slice(),
            self.node_mask,
            Node {
                address,
                parent,
                number,
            },
        );
        if let Some(known) = self.known.slice().get_mut(number as usize) {
            *known = Known { address, ..UNKNOWN };
        }
        self.note_child(parent, address, number);
        self.next_node = number.checked_add(1)?;
        Some(number)
    }

    #[cold]
    fn grow_nodes(&mut self) -> Option<()> {
        let places = (2 * (self.node_mask + 1)).max(FIRST_PLACES);
        let mut bigger = Pages::empty();
        if !bigger.grow(places) {
            return None;
        }
        for node in self.nodes.slice().iter().filter(|node| node.address != 0) {
            insert_node(bigger.slice(), places - 1, *node);
        }
        self.nodes.release();
        self.nodes = bigger;
        self.node_mask = places - 1;
        Some(())
    }

    #[inline]
    pub fn site_number(&mut self, node: u32, call: u8) -> Found {
        let short = |site: u32| (u32::from(call) << CALL_SHIFT) | site;
        let last = self
            .known
            .slice()
            .get(node as usize)
            .map_or(0, |known| known.site);
        let site = last & ((1 << CALL_SHIFT) - 1);
        if site != 0 && last == short(site) {
            return Found::Known(site);
        }
        let found = self.find_site(node, call);
        if let (Found::Known(site) | Found::New(site), Some(known)) =
            (&found, self.known.slice().get_mut(node as usize))
            && site >> CALL_SHIFT == 0
        {
            known.site = short(*site);
        }
        found
    }

    fn find_site(&mut self, node: u32, call: u8) -> Found {
        let key = (u64::from(node) << 8) | u64::from(call);
        match self.sites.get(key) {
            Some(number) => Found::Known(number as u32),
            None => self.add_site(key),
        }
    }

    #[cold]
    fn add_site(&mut self, key: u64) -> Found {
        let number = self.next_site;
        let wanted = number as usize + 1;
        let room = wanted.next_power_of_two();
        if !self.memories.grow_to(wanted, room) || !self.sites.insert(key, number.into()) {
            return Found::Full;
        }
        self.next_site = number + 1;
        Found::New(number)
    }
}

/// Site 0 has no memory, like in the reader. Frame 0 stands for the roots.
impl Tables for Interned {
    #[inline]
    fn site(&mut self, site: u32) -> Option<&mut SiteMemory> {
        if site < FIRST_SITE {
            return None;
        }
        self.memories.slice().get_mut(site as usize)
    }

    fn callees(&mut self, frame: u32) -> Option<&mut Callees> {
        self.callees.slice().get_mut(frame as usize)
    }

    fn frame_of(&mut self, node: u32) -> u32 {
        self.frame_of
            .slice()
            .get(node as usize)
            .copied()
            .unwrap_or(0)
    }

    fn next_node(&self) -> u32 {
        self.next_node
    }

    fn next_frame(&self) -> u32 {
        self.next_frame
    }
}

fn insert_node(nodes: &mut [Node], mask: usize, node: Node) {
    let mut place = mix(node.address, u64::from(node.parent)) & mask;
    while let Some(at) = nodes.get_mut(place) {
        if at.address == 0 {
            *at = node;
            return;
        }
        place = (place + 1) & mask;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_numbered_once() {
        let mut interned = Interned::new();
        for address in 1..10_000u64 {
            assert_eq!(interned.known_node(1, address), None);
            let number = interned.add_node(1, address, 7).expect("memory");
            assert_eq!(number, FIRST_NODE + address as u32 - 1);
        }
        for address in 1..10_000u64 {
            assert_eq!(
                interned.known_node(1, address),
                Some(FIRST_NODE + address as u32 - 1)
            );
        }
        interned.forget();
        assert_eq!(interned.known_node(1, 5), None);
        assert_eq!(interned.add_node(1, 5, 7), Some(FIRST_NODE));
        interned.release();
    }

    #[test]
    fn sites_are_numbered_once_and_have_a_memory() {
        let mut interned = Interned::new();
        for node in 0..5_000 {
            assert!(
                matches!(interned.site_number(node, 3), Found::New(n) if n == node + FIRST_SITE)
            );
            assert!(Tables::site(&mut interned, node + FIRST_SITE).is_some());
        }
        assert!(matches!(
            interned.site_number(4_999, 3),
            Found::Known(5_000)
        ));
        assert!(matches!(interned.site_number(4_999, 4), Found::New(5_001)));
        interned.release();
    }
}
