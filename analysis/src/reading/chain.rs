//! Stacks of resolved code addresses. They share their callers, so those of an image take 8 bytes a distinct
//! stack, whatever its depth, and 16 a distinct address.

use std::cell::{Cell, OnceCell};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::num::NonZeroU32;
use std::rc::Rc;

use super::resolve::ChainFrame;

/// The functions at one code address, innermost first: the inlined ones, and the one that they are
/// inlined into.
pub type Location = Rc<[ChainFrame]>;

/// The resolved stacks of an image by number, and their code addresses by a number of their own. A stack
/// that is not set is empty. Each is set once.
pub struct Stacks {
    /// Another one for each, so that a `StackKey` is of one image.
    key: u32,
    links: Numbered<Link>,
    locations: Numbered<Location>,
}

#[derive(Clone, Copy)]
struct Link {
    /// The number of the innermost address, plus one: without that an unset link would take 4 bytes more.
    location: NonZeroU32,
    callers: u32,
}

thread_local! {
    static NEXT_KEY: Cell<u32> = const { Cell::new(0) };
}

impl Stacks {
    pub fn new() -> Rc<Self> {
        Rc::new(Self {
            key: NEXT_KEY.replace(NEXT_KEY.get().wrapping_add(1)),
            links: Numbered::default(),
            locations: Numbered::default(),
        })
    }

    pub fn has_stack(&self, number: u32) -> bool {
        self.links.get(number).is_some()
    }

    pub fn has_location(&self, number: u32) -> bool {
        self.locations.get(number).is_some()
    }

    /// Sets the address of this number.
    pub fn locate(&self, number: u32, location: Location) {
        self.locations.set(number, location);
    }

    /// Sets the stack of a call at this address by these callers, who were set before.
    pub fn call(&self, number: u32, location: u32, callers: u32) {
        if let Some(location) = location.checked_add(1).and_then(NonZeroU32::new) {
            self.links.set(number, Link { location, callers });
        }
    }

    /// The stack of this number.
    pub fn chain(self: &Rc<Self>, number: u32) -> Chain {
        Chain(self.has_stack(number).then(|| (self.clone(), number)))
    }
}

/// A stack, innermost frame first. A clone takes no memory of its own.
#[derive(Clone, Default)]
pub struct Chain(Option<(Rc<Stacks>, u32)>);

/// A stack among those of all images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StackKey(u64);

impl Chain {
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The number of code addresses. Takes time by that number.
    pub fn depth(&self) -> usize {
        self.outward().count()
    }

    /// The address at this depth, counted from the innermost. Takes time by the depth.
    pub fn get(&self, depth: usize) -> Option<&Location> {
        let mut at = self.iter();
        for _ in 0..depth {
            at.step()?;
        }
        at.next()
    }

    #[inline]
    pub fn iter(&self) -> Locations<'_> {
        Locations(self.0.as_ref().map(|(stacks, number)| (&**stacks, *number)))
    }

    /// The stack and its callers' stacks.
    pub fn outward(&self) -> impl Iterator<Item = StackKey> {
        let mut at = self.iter();
        std::iter::from_fn(move || {
            let key = at.key()?;
            at.step().map(|_| key)
        })
    }

    /// The same with the innermost address of each.
    pub fn stacks(&self) -> impl Iterator<Item = (StackKey, &Location)> {
        let mut at = self.iter();
        std::iter::from_fn(move || at.key().zip(at.next()))
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self).finish()
    }
}

/// Equality of code addresses: each has one location.
impl PartialEq for Chain {
    fn eq(&self, other: &Self) -> bool {
        let (mut a, mut b) = (self.iter(), other.iter());
        loop {
            if a.is_at(&b) {
                return true;
            }
            match (a.next(), b.next()) {
                (None, None) => return true,
                (Some(x), Some(y)) if Rc::ptr_eq(x, y) => {}
                _ => return false,
            }
        }
    }
}

impl Eq for Chain {}

impl Hash for Chain {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for location in self {
            Rc::as_ptr(location).hash(state);
        }
    }
}

impl FromIterator<Location> for Chain {
    fn from_iter<I: IntoIterator<Item = Location>>(locations: I) -> Self {
        let (stacks, mut count) = (Stacks::new(), 0);
        for location in locations {
            stacks.locate(count, location);
            stacks.call(count, count, count + 1);
            count += 1;
        }
        stacks.chain(0)
    }
}

/// Iterates outward.
pub struct Locations<'a>(Option<(&'a Stacks, u32)>);

impl<'a> Locations<'a> {
    #[inline]
    fn key(&self) -> Option<StackKey> {
        let (stacks, number) = self.0?;
        Some(StackKey(u64::from(stacks.key) << 32 | u64::from(number)))
    }

    #[inline]
    fn step(&mut self) -> Option<(&'a Stacks, Link)> {
        let (stacks, number) = self.0?;
        let link = *stacks.links.get(number)?;
        self.0 = Some((stacks, link.callers));
        Some((stacks, link))
    }

    /// Whether both go on alike because they are in the same stack.
    fn is_at(&self, other: &Self) -> bool {
        matches!((self.0, other.0), (Some((a, x)), Some((b, y))) if x == y && std::ptr::eq(a, b))
    }
}

impl<'a> Iterator for Locations<'a> {
    type Item = &'a Location;

    #[inline]
    fn next(&mut self) -> Option<&'a Location> {
        let (stacks, link) = self.step()?;
        stacks.locations.get(link.location.get() - 1)
    }
}

impl<'a> IntoIterator for &'a Chain {
    type Item = &'a Location;
    type IntoIter = Locations<'a>;

    fn into_iter(self) -> Locations<'a> {
        self.iter()
    }
}

/// Values by number, each set once; a value can be borrowed while others are set. Takes memory by the
/// highest number.
struct Numbered<T>([OnceCell<Box<[OnceCell<T>]>>; BLOCKS]);

/// A block has room for as many as all before it and the first one.
const BLOCKS: usize = (u32::BITS - FIRST_BITS) as usize + 1;
const FIRST_BITS: u32 = 6;

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| OnceCell::new()))
    }
}

impl<T> Numbered<T> {
    #[inline]
    fn place(number: u32) -> (usize, usize) {
        let from_first = number as usize + (1 << FIRST_BITS);
        let bits = from_first.ilog2();
        ((bits - FIRST_BITS) as usize, from_first - (1 << bits))
    }

    #[inline]
    fn get(&self, number: u32) -> Option<&T> {
        let (block, place) = Self::place(number);
        self.0[block].get()?[place].get()
    }

    /// Keeps the first value.
    fn set(&self, number: u32, value: T) {
        let (block, place) = Self::place(number);
        let room = 1 << (block as u32 + FIRST_BITS);
        let empty = || (0..room).map(|_| OnceCell::new()).collect();
        self.0[block].get_or_init(empty)[place].get_or_init(|| value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_of_the_same_addresses_are_equal() {
        let [a, b]: [Location; 2] = [Rc::new([]), Rc::new([])];
        let chain = |locations: &[&Location]| -> Chain {
            locations
                .iter()
                .map(|location| Rc::clone(location))
                .collect()
        };
        assert_eq!(chain(&[&a, &b]), chain(&[&a, &b]));
        for other in [&[&a][..], &[&a, &a], &[&b, &b], &[&a, &b, &b], &[]] {
            assert_ne!(chain(&[&a, &b]), chain(other));
        }
    }

    #[test]
    fn values_are_found_by_number() {
        let values = Numbered::default();
        let numbers = [0, 1, 63, 64, 191, 192, 70_000];
        for number in numbers {
            values.set(number, number);
        }
        values.set(64, 0);
        for number in (0..200).chain([69_999, 70_000, u32::MAX]) {
            let set = numbers.contains(&number).then_some(&number);
            assert_eq!(values.get(number), set);
        }
    }

    #[test]
    fn stacks_share_their_callers_and_last_as_long_as_their_chains() {
        assert_eq!(size_of::<OnceCell<Link>>(), 8);
        let (stacks, location): (_, Location) = (Stacks::new(), Rc::new([]));
        stacks.locate(0, location.clone());
        let deep = 1 << 20;
        (1..=deep).for_each(|number| stacks.call(number, 0, number - 1));
        let sites = (deep + 1..deep + 4096).map(|number| {
            stacks.call(number, 0, deep);
            stacks.chain(number)
        });
        let mut sites: Vec<Chain> = sites.collect();
        drop(stacks);
        assert_eq!(sites[7].depth(), deep as usize + 1);
        let outer = |site: &Chain| site.outward().nth(1);
        assert_eq!(outer(&sites[7]), outer(&sites[8]));
        assert_ne!(sites[7].outward().next(), sites[8].outward().next());
        sites.truncate(1);
        assert_eq!(Rc::strong_count(&location), 2);
        sites.clear();
        assert_eq!(Rc::strong_count(&location), 1);
    }
}
