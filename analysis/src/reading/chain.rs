//! A stack of resolved code addresses, innermost first. Stacks share their callers, so the chains of a
//! trace take memory by its distinct stacks, whatever their depth.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use super::resolve::ChainFrame;

/// The functions at one code address, innermost first: the inlined ones, and the one that they are
/// inlined into.
pub type Location = Rc<[ChainFrame]>;

/// A stack, innermost frame first. A clone takes no memory of its own.
#[derive(Clone, Default)]
pub struct Chain(Option<Rc<Link>>);

/// One stack of an image, as long as its chains live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StackKey(usize);

struct Link {
    location: Location,
    callers: Chain,
}

impl Chain {
    /// The stack of a call at `location`, with these callers.
    pub fn called(location: Location, callers: Chain) -> Self {
        Self(Some(Rc::new(Link { location, callers })))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The number of code addresses. Takes time by that number.
    pub fn depth(&self) -> usize {
        self.iter().count()
    }

    /// The address at this depth, counted from the innermost. Takes time by the depth.
    pub fn get(&self, depth: usize) -> Option<&Location> {
        self.iter().nth(depth)
    }

    pub fn iter(&self) -> Locations<'_> {
        Locations(self)
    }

    /// The stack and its callers' stacks, each with its number in one image.
    pub fn outward(&self) -> impl Iterator<Item = StackKey> {
        let mut at = self;
        std::iter::from_fn(move || {
            let link = at.0.as_ref()?;
            at = &link.callers;
            Some(StackKey(Rc::as_ptr(link) as usize))
        })
    }
}

impl Drop for Chain {
    /// Iterative, because a stack may be deeper than ours.
    fn drop(&mut self) {
        let mut next = self.0.take();
        while let Some(mut link) = next.and_then(Rc::into_inner) {
            next = link.callers.0.take();
        }
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
        let (mut a, mut b) = (self, other);
        loop {
            match (&a.0, &b.0) {
                (None, None) => return true,
                (Some(x), Some(y)) if Rc::ptr_eq(x, y) => return true,
                (Some(x), Some(y)) if Rc::ptr_eq(&x.location, &y.location) => {
                    (a, b) = (&x.callers, &y.callers);
                }
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
        let locations: Vec<Location> = locations.into_iter().collect();
        let outward = locations.into_iter().rev();
        outward.fold(Chain::default(), |callers, location| {
            Chain::called(location, callers)
        })
    }
}

/// Iterates outward.
pub struct Locations<'a>(&'a Chain);

impl<'a> Iterator for Locations<'a> {
    type Item = &'a Location;

    fn next(&mut self) -> Option<&'a Location> {
        let link = self.0.0.as_ref()?;
        self.0 = &link.callers;
        Some(&link.location)
    }
}

impl<'a> IntoIterator for &'a Chain {
    type Item = &'a Location;
    type IntoIter = Locations<'a>;

    fn into_iter(self) -> Locations<'a> {
        self.iter()
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
    fn stacks_share_their_callers_and_any_depth_can_be_dropped() {
        let location: Location = Rc::new([]);
        let deep: Chain = std::iter::repeat_n(location.clone(), 1 << 20).collect();
        let sites: Vec<Chain> = (0..1 << 12)
            .map(|_| Chain::called(location.clone(), deep.clone()))
            .collect();
        // The deep one's addresses and one for each site, and this one.
        assert_eq!(Rc::strong_count(&location), (1 << 20) + (1 << 12) + 1);
        assert_eq!(sites[7].depth(), (1 << 20) + 1);
        drop(deep);
        drop(sites);
        assert_eq!(Rc::strong_count(&location), 1);
    }
}
