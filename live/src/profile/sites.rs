//! Source lines with what the profiles say of each: the same attribution as for traces.
//!
//! Invariant: over all sites the figures add up to the total; so do the rows, one a stack.

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
    /// The frame charged, counted over all functions of the chain from the innermost.
    pub site: Option<usize>,
    pub figures: Figures,
    /// Of the profile, in the order in which they were read.
    pub profile: usize,
    pub truncated: bool,
}

#[derive(Debug)]
pub struct ProfiledSite {
    id: SiteId,
    /// Now; what was allocated and freed since the base, if that is an earlier time.
    pub figures: Figures,
    /// Since the base, or without one since the last mark.
    pub growth: Growth,
    /// In the base, from its beginning.
    pub before: Figures,
    /// Of `Profiled::rows`; none if only the base has it.
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
    /// Of the base alone.
    pub base_rows: Vec<Row>,
    pub base: Base,
    /// As of a site.
    pub total: Figures,
    pub total_growth: Growth,
}

impl Profiled {
    /// Takes time and memory by the frames of the profiles, and by the size of the modules' symbols.
    pub fn new(charging: Charging, profiles: &[HeapProfile], base: Option<&[HeapProfile]>) -> Self {
        let mut profiled = Self::charging(charging);
        profiled.read_again(profiles, base);
        profiled
    }

    /// Of no profile yet.
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

    /// What other profiles of the same processes say. Sites keep their numbers, and symbols that
    /// are loaded stay so.
    pub fn read_again(&mut self, profiles: &[HeapProfile], base: Option<&[HeapProfile]>) {
        self.rows = uncharged(&mut self.resolver, profiles);
        self.base_rows = uncharged(&mut self.resolver, base.unwrap_or_default());
        let all = self.rows.iter().chain(&self.base_rows);
        self.wrappers = find_wrappers(&mut self.resolver, all);
        // With the wrappers of both: a site is the same one in the base.
        self.rows.iter_mut().for_each(Row::charge);
        self.base_rows.iter_mut().for_each(Row::charge);
        self.base = base.map_or(Base::None, |base| relation(profiles, base));
        self.sites.clear();
        self.total = Figures::default();
        self.gather();
    }

    /// Whether a growth has an interval: no profile has that of the last mark.
    pub fn growth_is_sure(&self) -> bool {
        self.base != Base::None
    }

    /// What another profile of the same processes has, by site; sites that only it has are not
    /// known here, and wrappers are those that were found before.
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

    /// The stack of a site that weighs most by this measure.
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

/// Of what only adds up, takes away what was there before.
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

/// The rows before it is known who is charged.
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

/// Marks the wrappers that these stacks show, by what is estimated of each.
fn find_wrappers<'a>(resolver: &mut Resolver, rows: impl Iterator<Item = &'a Row>) -> Passed {
    let mut passed = Passed::default();
    if !resolver.passes_wrappers() {
        return passed;
    }
    let path = |row: &Row| {
        // A profile of leaks has nothing else.
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
