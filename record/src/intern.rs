//! A stream's distinct stacks and sites: from (parent, frame) to a node's number, and from (node,
//! call) to a site's.
//!
//! Thread safety: owned by a stream. Invariants: numbers are given in order; a table is at most
//! three quarters full, so that a search ends; key 0 is an empty place.

use larder_trace::codec::{FIRST_NODE, FIRST_SITE, SiteMemories, SiteMemory};

use crate::memory::Pages;

#[derive(Clone, Copy)]
struct Node {
    /// The packed address, never 0 in a used place.
    address: u64,
    parent: u32,
    number: u32,
}

#[derive(Clone, Copy)]
struct Site {
    /// Node and call, never 0 in a used place.
    key: u64,
    number: u32,
}

pub struct Interned {
    nodes: Pages<Node>,
    node_mask: usize,
    next_node: u32,
    sites: Pages<Site>,
    site_mask: usize,
    next_site: u32,
    memories: Pages<SiteMemory>,
}

pub enum Found {
    Known(u32),
    /// Numbered just now: it is to be defined in the trace.
    New(u32),
    /// No memory.
    Full,
}

const FIRST_PLACES: usize = 256;

fn mix(a: u64, b: u64) -> usize {
    let hash = (a ^ b.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash ^ (hash >> 32)) as usize
}

impl Interned {
    pub const fn new() -> Self {
        Interned {
            nodes: Pages::empty(),
            node_mask: 0,
            next_node: FIRST_NODE,
            sites: Pages::empty(),
            site_mask: 0,
            next_site: FIRST_SITE,
            memories: Pages::empty(),
        }
    }

    pub fn next_node(&self) -> u32 {
        self.next_node
    }

    pub fn next_site(&self) -> u32 {
        self.next_site
    }

    /// Gives numbers anew.
    pub fn forget(&mut self) {
        self.nodes.slice().fill(Node {
            address: 0,
            parent: 0,
            number: 0,
        });
        self.sites.slice().fill(Site { key: 0, number: 0 });
        self.next_node = FIRST_NODE;
        self.next_site = FIRST_SITE;
    }

    pub fn release(&mut self) {
        self.nodes.release();
        self.sites.release();
        self.memories.release();
    }

    /// The number of this node if it has one.
    #[inline]
    pub fn known_node(&mut self, parent: u32, address: u64) -> Option<u32> {
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

    /// Numbers a node that is not known; `None` without memory.
    pub fn add_node(&mut self, parent: u32, address: u64) -> Option<u32> {
        let used = (self.next_node - FIRST_NODE) as usize;
        if self.node_mask == 0 || used * 4 >= (self.node_mask + 1) * 3 {
            self.grow_nodes()?;
        }
        let number = self.next_node;
        insert_node(
            self.nodes.slice(),
            self.node_mask,
            Node {
                address,
                parent,
                number,
            },
        );
        self.next_node = number.checked_add(1)?;
        Some(number)
    }

    #[cold]
    fn grow_nodes(&mut self) -> Option<()> {
        let places = if self.node_mask == 0 {
            FIRST_PLACES
        } else {
            (self.node_mask + 1) * 2
        };
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
    pub fn site(&mut self, node: u32, call: u8) -> Found {
        let key = (u64::from(node) << 8) | u64::from(call);
        let mask = self.site_mask;
        let mut place = mix(key, 0) & mask;
        let sites = self.sites.slice();
        while let Some(site) = sites.get(place) {
            if site.key == key {
                return Found::Known(site.number);
            }
            if site.key == 0 {
                break;
            }
            place = (place + 1) & mask;
        }
        self.add_site(key)
    }

    #[cold]
    fn add_site(&mut self, key: u64) -> Found {
        let used = (self.next_site - FIRST_SITE) as usize;
        if (self.site_mask == 0 || used * 4 >= (self.site_mask + 1) * 3)
            && self.grow_sites().is_none()
        {
            return Found::Full;
        }
        let number = self.next_site;
        let wanted = number as usize + 1;
        if wanted > self.memories.capacity() && !self.memories.grow(wanted.next_power_of_two()) {
            return Found::Full;
        }
        insert_site(self.sites.slice(), self.site_mask, Site { key, number });
        self.next_site = number + 1;
        Found::New(number)
    }

    fn grow_sites(&mut self) -> Option<()> {
        let places = if self.site_mask == 0 {
            FIRST_PLACES
        } else {
            (self.site_mask + 1) * 2
        };
        let mut bigger = Pages::empty();
        if !bigger.grow(places) {
            return None;
        }
        for site in self.sites.slice().iter().filter(|site| site.key != 0) {
            insert_site(bigger.slice(), places - 1, *site);
        }
        self.sites.release();
        self.sites = bigger;
        self.site_mask = places - 1;
        Some(())
    }

    /// The memories of the sites that are numbered.
    #[inline]
    pub fn memories(&mut self) -> Memories<'_> {
        Memories(self.memories.slice())
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

fn insert_site(sites: &mut [Site], mask: usize, site: Site) {
    let mut place = mix(site.key, 0) & mask;
    while let Some(at) = sites.get_mut(place) {
        if at.key == 0 {
            *at = site;
            return;
        }
        place = (place + 1) & mask;
    }
}

/// Site 0 has none, as the reader has none.
pub struct Memories<'a>(&'a mut [SiteMemory]);

impl SiteMemories for Memories<'_> {
    #[inline]
    fn memory(&mut self, site: u32) -> Option<&mut SiteMemory> {
        if site < FIRST_SITE {
            return None;
        }
        self.0.get_mut(site as usize)
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
            let number = interned.add_node(1, address).expect("memory");
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
        assert_eq!(interned.add_node(1, 5), Some(FIRST_NODE));
        interned.release();
    }

    #[test]
    fn sites_are_numbered_once_and_have_a_memory() {
        let mut interned = Interned::new();
        for node in 0..5_000 {
            assert!(matches!(interned.site(node, 3), Found::New(n) if n == node + FIRST_SITE));
            assert!(interned.memories().memory(node + FIRST_SITE).is_some());
        }
        assert!(matches!(interned.site(4_999, 3), Found::Known(5_000)));
        assert!(matches!(interned.site(4_999, 4), Found::New(5_001)));
        interned.release();
    }
}
