//! The sites: source lines that allocate, with their sums over all process images; also those that copy or make
//! system calls, and functions that run.
//!
//! Invariant: over all sites that allocate, `calls`, `bytes`, `tiny` and the live figures add up to the counters; the
//! peaks add up to the peak of the process image with the highest.
//!
//! Memory grows with the sites; if all stacks are kept, with the distinct stacks of all images.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use clap::ValueEnum;
use foldhash::fast::RandomState;
use larder_base::order;
use rustc_hash::FxHashMap;

use super::chain::{Chain, Location};
use super::heap::Origin;
use super::resolve::{ChainFrame, ModuleLabel};

/// The figure that sites are ranked by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SortKey {
    /// Calls that allocate
    Calls,
    /// Bytes requested in all
    Bytes,
    /// Bytes live at the program's peak
    Peak,
    /// Blocks under 32 bytes
    Tiny,
    /// Bytes still live at the end
    Live,
    /// System calls that failed (diff --syscalls)
    Errors,
    /// Processor time, or time within system calls (diff --cpu, --syscalls)
    Time,
}

impl SortKey {
    pub const ALL: [SortKey; 7] = [
        SortKey::Calls,
        SortKey::Bytes,
        SortKey::Peak,
        SortKey::Tiny,
        SortKey::Live,
        SortKey::Errors,
        SortKey::Time,
    ];
    pub const OF_ALLOCATIONS: [SortKey; 5] = [
        SortKey::Calls,
        SortKey::Bytes,
        SortKey::Peak,
        SortKey::Tiny,
        SortKey::Live,
    ];

    /// As the command line has it.
    pub fn value(self) -> String {
        let value = self.to_possible_value();
        value.map_or(String::new(), |value| value.get_name().to_owned())
    }
}

/// What a site, or one of its stacks, adds up to.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    /// Calls; of processor time, samples.
    pub calls: u64,
    pub bytes: u64,
    pub peak_bytes: u64,
    pub tiny: u64,
    pub live_blocks: u64,
    pub live_bytes: u64,
    pub errors: u64,
    pub time_ns: u64,
    /// Of each figure that is an estimate or was measured by chance, by ranking; 0 of what was counted.
    pub variances: [f64; SortKey::ALL.len()],
}

impl Sums {
    pub fn of(&self, key: SortKey) -> u64 {
        match key {
            SortKey::Calls => self.calls,
            SortKey::Bytes => self.bytes,
            SortKey::Peak => self.peak_bytes,
            SortKey::Tiny => self.tiny,
            SortKey::Live => self.live_bytes,
            SortKey::Errors => self.errors,
            SortKey::Time => self.time_ns,
        }
    }

    fn of_mut(&mut self, key: SortKey) -> &mut u64 {
        match key {
            SortKey::Calls => &mut self.calls,
            SortKey::Bytes => &mut self.bytes,
            SortKey::Peak => &mut self.peak_bytes,
            SortKey::Tiny => &mut self.tiny,
            SortKey::Live => &mut self.live_bytes,
            SortKey::Errors => &mut self.errors,
            SortKey::Time => &mut self.time_ns,
        }
    }

    fn add(&mut self, other: &Sums, keep_peak: bool) {
        self.live_blocks = self.live_blocks.saturating_add(other.live_blocks);
        let keys = SortKey::ALL.into_iter();
        for key in keys.filter(|key| *key != SortKey::Peak || keep_peak) {
            let sum = self.of_mut(key);
            *sum = sum.saturating_add(other.of(key));
            self.variances[key as usize] += other.variances[key as usize];
        }
    }
}

impl From<&Origin> for Sums {
    fn from(origin: &Origin) -> Self {
        Self {
            calls: origin.calls,
            bytes: origin.bytes,
            peak_bytes: origin.peak_bytes,
            tiny: origin.tiny,
            live_blocks: origin.live_blocks,
            live_bytes: origin.live_bytes,
            ..Self::default()
        }
    }
}

/// What is one site, of the frames that are charged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum By {
    /// A line.
    #[default]
    Line,
    /// A line, and the function that it calls.
    Call(Rc<str>),
    /// A function; of one without a name, where its code begins, else 0.
    Function(u64),
}

/// The identity of a site.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SiteKey {
    /// The address of the label, which is unique to the module.
    module: usize,
    function: Option<Rc<str>>,
    file: Option<Rc<str>>,
    line: Option<u32>,
    /// Only where there is no line.
    address: u64,
    by: By,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SiteId(pub usize);

/// A stack of a site, and which of its functions is the site's.
#[derive(Clone, Debug)]
pub struct SiteStack {
    pub chain: Chain,
    /// `None`: the stack is empty.
    pub site: Option<usize>,
}

impl SiteStack {
    fn charged(&self) -> Option<(&Location, &ChainFrame)> {
        let mut inner = self.site?;
        self.chain.iter().find_map(|location| {
            let frame = location.get(inner);
            inner = inner.wrapping_sub(location.len());
            Some((location, frame?))
        })
    }
}

/// A stack of a site with its requests.
#[derive(Debug)]
pub struct WeighedStack {
    pub stack: SiteStack,
    /// The function called.
    kind: &'static str,
    sums: Sums,
}

impl WeighedStack {
    pub fn weight(&self, key: SortKey) -> u64 {
        self.sums.of(key)
    }
}

/// A source line; without one, a function or an address.
#[derive(Debug)]
pub struct Site {
    /// Demangled; `None` if not even a symbol is known.
    pub function: Option<Rc<str>>,
    /// Offset into the function, if the name is from a symbol table.
    pub offset: Option<u64>,
    pub file: Option<Rc<str>>,
    pub line: Option<u32>,
    pub module: Option<Rc<ModuleLabel>>,
    /// The address in the module.
    pub address: u64,
    pub by: By,
    pub sums: Sums,
    /// Calls by the name of the function called.
    pub kinds: BTreeMap<&'static str, u64>,
    /// The heaviest stack for each ranking.
    heaviest: [Option<(u64, SiteStack)>; SortKey::ALL.len()],
    /// All stacks, if the table keeps them: each measure adds up to the site's.
    stacks: Vec<WeighedStack>,
}

impl Site {
    pub fn weight(&self, key: SortKey) -> u64 {
        self.sums.of(key)
    }

    /// The heaviest stack in a ranking; the one with most calls if all are 0.
    pub fn heaviest(&self, key: SortKey) -> Option<&SiteStack> {
        let by_calls = &self.heaviest[SortKey::Calls as usize];
        let (_, stack) = self.heaviest[key as usize].as_ref().or(by_calls.as_ref())?;
        Some(stack)
    }

    /// All its stacks; none unless the table keeps them.
    pub fn stacks(&self) -> &[WeighedStack] {
        &self.stacks
    }
}

#[derive(Default)]
pub struct SiteTable {
    sites: Vec<Site>,
    /// Has names of the trace; see `StackTable`.
    by_key: HashMap<SiteKey, SiteId, RandomState>,
    /// By the place of a charged frame, which the location keeps.
    by_frame: FxHashMap<*const ChainFrame, (Location, SiteId)>,
    /// The index of each stack in its site, if stacks are kept.
    places: Option<FxHashMap<(SiteId, &'static str, Chain), usize>>,
    /// The peak of which the sites' `peak_bytes` are shares.
    peak_bytes: u64,
    shares_missing: bool,
}

impl SiteTable {
    /// A table that keeps all stacks of each site.
    pub fn with_stacks() -> Self {
        Self {
            places: Some(FxHashMap::default()),
            ..Self::default()
        }
    }

    /// Whether the sites' shares of the peak are known: not if the image with the peak has only
    /// counters.
    pub fn knows_peak_shares(&self) -> bool {
        !self.shares_missing
    }

    /// A site's bytes live at the peak, if known.
    pub fn at_peak(&self, site: &Site) -> Option<u64> {
        self.knows_peak_shares().then_some(site.sums.peak_bytes)
    }

    /// The site of a stack.
    pub fn intern(&mut self, stack: &SiteStack) -> SiteId {
        let Some((location, frame)) = stack.charged() else {
            return self.intern_by(stack, By::Line);
        };
        if let Some((_, id)) = self.by_frame.get(&std::ptr::from_ref(frame)) {
            return *id;
        }
        let id = self.intern_by(stack, By::Line);
        self.by_frame.insert(frame, (location.clone(), id));
        id
    }

    pub fn intern_by(&mut self, stack: &SiteStack, by: By) -> SiteId {
        let frame = stack.charged().map(|(_, frame)| frame);
        let function = frame.and_then(|frame| frame.source.function.as_ref());
        // A function is one site whatever its lines.
        let lined = frame.filter(|_| !matches!(by, By::Function(_)));
        let line = lined.and_then(|frame| frame.source.line);
        let key = SiteKey {
            module: frame.map_or(0, |frame| Rc::as_ptr(&frame.module) as usize),
            function: function.map(|function| function.symbol.clone()),
            file: lined.and_then(|frame| frame.source.file.clone()),
            line,
            address: lined
                .filter(|_| line.is_none())
                .map_or(0, |frame| frame.address),
            by,
        };
        if let Some(id) = self.by_key.get(&key) {
            return *id;
        }
        let id = SiteId(self.sites.len());
        self.sites.push(Site {
            function: function.map(|function| function.name.clone()),
            offset: lined.and(function).and_then(|function| function.offset),
            file: frame.and_then(|frame| frame.source.file.clone()),
            line,
            module: frame.map(|frame| frame.module.clone()),
            address: match key.by {
                By::Function(start) if start > 0 => start,
                _ => frame.map_or(0, |frame| frame.address),
            },
            by: key.by.clone(),
            sums: Sums::default(),
            kinds: BTreeMap::new(),
            heaviest: Default::default(),
            stacks: Vec::new(),
        });
        self.by_key.insert(key, id);
        id
    }

    pub fn is_empty(&self) -> bool {
        self.sites.is_empty()
    }

    pub fn get(&self, id: SiteId) -> &Site {
        &self.sites[id.0]
    }

    pub fn ids(&self) -> impl Iterator<Item = SiteId> {
        (0..self.sites.len()).map(SiteId)
    }

    /// Begins a process image with this peak; returns whether the shares of it are to be stored.
    pub fn begin_image(&mut self, peak_bytes: u64, shares_known: bool) -> bool {
        if peak_bytes <= self.peak_bytes {
            return false;
        }
        self.peak_bytes = peak_bytes;
        self.shares_missing = !shares_known;
        for site in &mut self.sites {
            site.sums.peak_bytes = 0;
            site.heaviest[SortKey::Peak as usize] = None;
            for stack in &mut site.stacks {
                stack.sums.peak_bytes = 0;
            }
        }
        true
    }

    /// Adds what one stack adds up to. `stack` is called only if it is to be stored.
    pub fn add(
        &mut self,
        id: SiteId,
        kind: &'static str,
        sums: &Sums,
        keep_peak: bool,
        mut stack: impl FnMut() -> SiteStack,
    ) {
        let site = &mut self.sites[id.0];
        site.sums.add(sums, keep_peak);
        // Calls that all failed are not listed.
        if sums.calls > 0 {
            *site.kinds.entry(kind).or_default() += sums.calls;
        }
        let mut resolved: Option<SiteStack> = None;
        for key in SortKey::ALL {
            let weight = sums.of(key);
            let best = &mut site.heaviest[key as usize];
            let worth = weight > best.as_ref().map_or(0, |(best, _)| *best);
            if worth && (key != SortKey::Peak || keep_peak) {
                let stack = resolved.get_or_insert_with(&mut stack).clone();
                *best = Some((weight, stack));
            }
        }
        if let Some(places) = &mut self.places {
            let stack = resolved.unwrap_or_else(stack);
            let stacks = &mut site.stacks;
            let place = *places
                .entry((id, kind, stack.chain.clone()))
                .or_insert(stacks.len());
            if place == stacks.len() {
                stacks.push(WeighedStack {
                    stack,
                    kind,
                    sums: Sums::default(),
                });
            }
            stacks[place].sums.add(sums, keep_peak);
        }
    }

    /// Attributes each stack again. The table must keep its stacks.
    pub fn charge_again(&mut self, charged: impl Fn(&Chain) -> Option<usize>) {
        let new = Self {
            peak_bytes: self.peak_bytes,
            shares_missing: self.shares_missing,
            ..Self::with_stacks()
        };
        let old = std::mem::replace(self, new);
        for site in old.sites {
            for known in site.stacks {
                let stack = SiteStack {
                    site: charged(&known.stack.chain),
                    chain: known.stack.chain,
                };
                let id = self.intern_by(&stack, site.by.clone());
                self.add(id, known.kind, &known.sums, true, || stack.clone());
            }
        }
    }

    /// All stacks of all sites, if they are kept.
    pub fn stacks(&self) -> impl Iterator<Item = &WeighedStack> {
        self.sites.iter().flat_map(|site| &site.stacks)
    }

    /// The sites above 0, heaviest first; equal ones by name.
    pub fn ranked(&self, key: SortKey) -> Vec<&Site> {
        let ids = self.ranked_ids(key).into_iter();
        ids.map(|id| self.get(id)).collect()
    }

    pub fn ranked_ids(&self, key: SortKey) -> Vec<SiteId> {
        let mut sites: Vec<SiteId> = self.ids().collect();
        sites.retain(|id| self.get(*id).sums.calls > 0);
        let name = |site: &Site| {
            (
                site.file.clone(),
                site.line,
                site.function.clone(),
                site.address,
            )
        };
        order::sort_by(&mut sites, |a, b| {
            let (a, b) = (self.get(*a), self.get(*b));
            b.weight(key)
                .cmp(&a.weight(key))
                .then_with(|| b.sums.calls.cmp(&a.sums.calls))
                .then_with(|| name(a).cmp(&name(b)))
        });
        sites
    }
}

#[cfg(test)]
mod tests {
    use super::super::chain::Location;
    use super::*;

    #[test]
    fn a_stack_that_several_images_have_is_kept_once() {
        let [a, b]: [Location; 2] = [Rc::new([]), Rc::new([])];
        let stack = |locations: &[&Location]| SiteStack {
            chain: locations.iter().copied().cloned().collect(),
            site: None,
        };
        let mut origin = Origin::default();
        (origin.calls, origin.bytes, origin.peak_bytes) = (3, 48, 16);
        let mut table = SiteTable::with_stacks();
        for peak in [100, 200, 50] {
            let keep_peak = table.begin_image(peak, true);
            for locations in [&[&a, &b][..], &[&b]] {
                let id = table.intern(&stack(locations));
                let sums = Sums::from(&origin);
                table.add(id, "malloc", &sums, keep_peak, || stack(locations));
            }
        }
        let sites = table.ranked(SortKey::Calls);
        let [site] = &sites[..] else {
            panic!("{sites:?}");
        };
        let weights = |key| -> Vec<u64> { site.stacks().iter().map(|s| s.weight(key)).collect() };
        assert_eq!(weights(SortKey::Calls), [9, 9]);
        assert_eq!(weights(SortKey::Bytes), [144, 144]);
        assert_eq!(weights(SortKey::Peak), [16, 16]);
    }
}
