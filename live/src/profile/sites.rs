//! Source lines with their figures in the profiles; the attribution is the same as for traces.
//!
//! Invariant: sum of sites = sum of rows (one a stack) = total.

use larder_analysis::reading::attribute::attribute;
use larder_analysis::reading::chain::Chain;
use larder_analysis::reading::resolve::{Charging, Resolver};
use larder_analysis::reading::sites::{Site, SiteId, SiteStack, SiteTable};
use larder_analysis::reading::wrappers::{self, Passed, Path};
use rustc_hash::FxHashMap;

use super::heap::{Figures, HeapProfile};
use super::interval::{Growth, Level};
use super::modules::Modules;

/// One stack of one process.
#[derive(Debug)]
pub struct Row {
    pub chain: Chain,
    /// Index of the charged frame, counted over all functions of the chain from the innermost.
    pub site: Option<usize>,
    pub figures: Figures,
    /// Index of the profile, in the order in which they were read.
    pub profile: usize,
    pub truncated: bool,
}

#[derive(Debug)]
pub struct ProfiledSite {
    id: SiteId,
    /// Current figures; allocated and freed since the base, if that is an earlier time.
    pub figures: Figures,
    /// Since the base; without one, since the last mark.
    pub growth: Growth,
    /// Figures in the base.
    pub before: Figures,
    /// Indices in `Profiled::rows`; none if only the base has the site.
    pub rows: Vec<usize>,
}

impl ProfiledSite {
    pub fn id(&self) -> SiteId {
        self.id
    }
}

/// What the profiles are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    None,
    /// An earlier time of the same process.
    Earlier,
    OtherRun,
}

pub struct Profiled {
    pub resolver: Resolver,
    /// The program's own allocation functions that calls came through.
    pub wrappers: Passed,
    table: SiteTable,
    pub sites: Vec<ProfiledSite>,
    pub rows: Vec<Row>,
    /// Sites that only the base has.
    pub base_rows: Vec<Row>,
    pub base: Base,
    /// The same for all sites.
    pub total: Figures,
    pub total_growth: Growth,
}

impl Profiled {
    /// Time and memory grow with the frames of the profiles and the size of the modules' symbols.
    pub fn new(charging: Charging, profiles: &[HeapProfile], base: Option<&[HeapProfile]>) -> Self {
        let mut profiled = Self::charging(charging);
        profiled.read_again(profiles, base);
        profiled
    }

    /// Without a profile yet.
    pub fn charging(charging: Charging) -> Self {
        Self {
            rows: Vec::new(),
            base_rows: Vec::new(),
            resolver: Resolver::new(charging),
            wrappers: Passed::default(),
            table: SiteTable::default(),
            sites: Vec::new(),
            base: Base::None,
            total: Figures::default(),
            total_growth: Growth::default(),
        }
    }

    /// Replaces the profiles by others of the same processes. Sites keep their numbers, and symbols stay
    /// loaded.
    pub fn read_again(&mut self, profiles: &[HeapProfile], base: Option<&[HeapProfile]>) {
        self.rows = uncharged(&mut self.resolver, profiles);
        self.base_rows = uncharged(&mut self.resolver, base.unwrap_or_default());
        let all = self.rows.iter().chain(&self.base_rows);
        self.wrappers = find_wrappers(&mut self.resolver, all);
        // The wrappers of both count, so that a site is the same in the base.
        self.rows.iter_mut().for_each(Row::charge);
        self.base_rows.iter_mut().for_each(Row::charge);
        self.base = base.map_or(Base::None, |base| relation(profiles, base));
        self.sites.clear();
        self.total = Figures::default();
        self.gather();
    }

    /// Whether growth has an interval: profiles have none for the growth since the mark.
    pub fn growth_is_sure(&self) -> bool {
        self.base != Base::None
    }

    /// The figures of another profile of the same processes, by site. Leaves out sites that only that
    /// profile has, and uses the wrappers that were found before.
    pub fn by_site(&mut self, profile: &HeapProfile) -> FxHashMap<SiteId, Figures> {
        let mut sums: FxHashMap<SiteId, Figures> = FxHashMap::default();
        for mut row in uncharged(&mut self.resolver, std::slice::from_ref(profile)) {
            row.charge();
            let id = self.table.intern(&row.stack());
            sums.entry(id).or_default().add(&row.figures);
        }
        sums
    }

    fn gather(&mut self) {
        let mut by_id: FxHashMap<SiteId, usize> = FxHashMap::default();
        let (table, sites) = (&mut self.table, &mut self.sites);
        let mut site_of = |row: &Row| {
            let id = table.intern(&row.stack());
            *by_id.entry(id).or_insert_with(|| {
                sites.push(ProfiledSite {
                    id,
                    figures: Figures::default(),
                    growth: Growth::default(),
                    before: Figures::default(),
                    rows: Vec::new(),
                });
                sites.len() - 1
            })
        };
        let places: Vec<usize> = self.rows.iter().map(&mut site_of).collect();
        let base_places: Vec<usize> = self.base_rows.iter().map(&mut site_of).collect();
        for (index, (row, place)) in self.rows.iter().zip(places).enumerate() {
            let site = &mut self.sites[place];
            site.figures.add(&row.figures);
            site.rows.push(index);
            self.total.add(&row.figures);
        }
        let mut total_before = Figures::default();
        for (row, place) in self.base_rows.iter().zip(base_places) {
            self.sites[place].before.add(&row.figures);
            total_before.add(&row.figures);
        }
        for site in &mut self.sites {
            site.growth = growth(self.base, &site.before, &site.figures);
            since(self.base, &site.before, &mut site.figures);
        }
        self.total_growth = growth(self.base, &total_before, &self.total);
        since(self.base, &total_before, &mut self.total);
    }

    /// Bytes that a site has allocated since the process began.
    pub fn allocated_so_far(&self, site: &ProfiledSite) -> f64 {
        let before = match self.base {
            Base::Earlier => site.before.allocated.bytes,
            _ => 0.0,
        };
        site.figures.allocated.bytes + before
    }

    /// Its name and place.
    pub fn named(&self, site: &ProfiledSite) -> &Site {
        self.table.get(site.id)
    }

    /// The heaviest stack of a site by this measure.
    pub fn heaviest(&self, site: &ProfiledSite, weight: impl Fn(&Figures) -> f64) -> Option<&Row> {
        let rows = site.rows.iter().map(|index| &self.rows[*index]);
        rows.max_by(|a, b| weight(&a.figures).total_cmp(&weight(&b.figures)))
    }
}

impl Row {
    fn charge(&mut self) {
        self.site = attribute(&self.chain, &[]).site;
    }

    pub fn stack(&self) -> SiteStack {
        SiteStack {
            chain: self.chain.clone(),
            site: self.site,
        }
    }
}

fn growth(base: Base, before: &Figures, now: &Figures) -> Growth {
    match base {
        Base::None => Growth {
            bytes: now.in_use.bytes - now.at_mark.bytes,
            ..Growth::default()
        },
        Base::Earlier => Growth::since(&level(before), &level(now)),
        Base::OtherRun => Growth::between(&level(before), &level(now)),
    }
}

/// Subtracts `before` from the figures that only grow.
fn since(base: Base, before: &Figures, now: &mut Figures) {
    if base != Base::Earlier {
        return;
    }
    now.allocated = now.allocated.less(before.allocated);
    for (now, before) in now.lifetimes.iter_mut().zip(&before.lifetimes) {
        *now = (*now - before).max(0.0);
    }
}

pub fn level(figures: &Figures) -> Level {
    Level {
        bytes: figures.in_use.bytes,
        freed: figures.allocated.less(figures.in_use).bytes,
        spread: figures.spread,
    }
}

/// One process before and after, or two runs.
fn relation(profiles: &[HeapProfile], base: &[HeapProfile]) -> Base {
    match (profiles, base) {
        ([now], [before])
            if now.process.is_some()
                && now.process == before.process
                && now.mappings.first() == before.mappings.first() =>
        {
            Base::Earlier
        }
        _ => Base::OtherRun,
    }
}

pub fn rows(resolver: &mut Resolver, profiles: &[HeapProfile]) -> Vec<Row> {
    let mut rows = uncharged(resolver, profiles);
    find_wrappers(resolver, rows.iter());
    rows.iter_mut().for_each(Row::charge);
    rows
}

/// The rows, not charged to a frame yet.
fn uncharged(resolver: &mut Resolver, profiles: &[HeapProfile]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (index, profile) in profiles.iter().enumerate() {
        let modules = Modules::new(&profile.mappings);
        rows.extend(profile.stacks.iter().map(|stack| Row {
            site: None,
            chain: modules.chain(resolver, &stack.frames),
            figures: stack.figures.clone(),
            profile: index,
            truncated: stack.truncated,
        }));
    }
    rows
}

/// Finds the wrappers in these stacks, weighted by the estimates.
fn find_wrappers<'a>(resolver: &mut Resolver, rows: impl Iterator<Item = &'a Row>) -> Passed {
    let mut passed = Passed::default();
    if !resolver.passes_wrappers() {
        return passed;
    }
    let path = |row: &Row| {
        // A profile of leaks has no other figures.
        let figures = [row.figures.allocated, row.figures.in_use];
        let [allocated, in_use] = figures.map(|sum| (sum.objects, sum.bytes));
        let (objects, bytes) = if allocated.0 > 0.0 { allocated } else { in_use };
        Path {
            chain: row.chain.clone(),
            calls: objects.ceil() as u64,
            bytes: bytes as u64,
        }
    };
    let paths: Vec<Path> = rows.map(path).collect();
    wrappers::find(&paths, resolver);
    passed.add(&paths);
    passed
}
