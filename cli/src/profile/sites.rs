//! Source lines with what the profiles say of each: the same attribution as for traces.
//!
//! Invariant: over all sites the figures add up to the total; so do the rows, one a stack.

use rustc_hash::FxHashMap;

use super::heap::{Figures, HeapProfile};
use super::interval::{Growth, Level};
use super::modules::Modules;
use crate::analysis::attribute::attribute;
use crate::analysis::chain::Chain;
use crate::analysis::resolve::Resolver;
use crate::analysis::sites::{Site, SiteId, SiteStack, SiteTable};

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
    pub figures: Figures,
    /// In the base.
    pub before: Figures,
    /// Of `Profiled::rows`; none if only the base has it.
    pub rows: Vec<usize>,
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
    table: SiteTable,
    pub sites: Vec<ProfiledSite>,
    pub rows: Vec<Row>,
    /// Of the base alone.
    pub base_rows: Vec<Row>,
    pub base: Base,
    pub total: Figures,
    pub total_before: Figures,
}

impl Profiled {
    /// Takes time and memory by the frames of the profiles, and by the size of the modules' symbols.
    pub fn new(profiles: &[HeapProfile], base: Option<&[HeapProfile]>) -> Self {
        let mut resolver = Resolver::new(Vec::new());
        let mut profiled = Self {
            rows: rows(&mut resolver, profiles),
            base_rows: rows(&mut resolver, base.unwrap_or_default()),
            resolver,
            table: SiteTable::default(),
            sites: Vec::new(),
            base: base.map_or(Base::None, |base| relation(profiles, base)),
            total: Figures::default(),
            total_before: Figures::default(),
        };
        profiled.gather();
        profiled
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
        for (row, place) in self.base_rows.iter().zip(base_places) {
            self.sites[place].before.add(&row.figures);
            self.total_before.add(&row.figures);
        }
    }

    /// Its name and place.
    pub fn named(&self, site: &ProfiledSite) -> &Site {
        self.table.get(site.id)
    }

    /// How much more is in use than in the base, or without one than at the last mark: then without
    /// an interval, as no profile has that of the mark.
    pub fn growth(&self, before: &Figures, now: &Figures) -> (Growth, bool) {
        match self.base {
            Base::None => {
                let growth = Growth {
                    bytes: now.in_use.bytes - now.at_mark.bytes,
                    ..Growth::default()
                };
                (growth, false)
            }
            Base::Earlier => (Growth::since(&level(before), &level(now)), true),
            Base::OtherRun => (Growth::between(&level(before), &level(now)), true),
        }
    }

    /// The stack of a site that weighs most by this measure.
    pub fn heaviest(&self, site: &ProfiledSite, weight: impl Fn(&Figures) -> f64) -> Option<&Row> {
        let rows = site.rows.iter().map(|index| &self.rows[*index]);
        rows.max_by(|a, b| weight(&a.figures).total_cmp(&weight(&b.figures)))
    }
}

impl Row {
    pub fn stack(&self) -> SiteStack {
        SiteStack {
            chain: self.chain.clone(),
            site: self.site,
        }
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

fn rows(resolver: &mut Resolver, profiles: &[HeapProfile]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (index, profile) in profiles.iter().enumerate() {
        let modules = Modules::new(&profile.mappings);
        rows.extend(profile.stacks.iter().map(|stack| {
            let chain = modules.chain(resolver, &stack.frames);
            Row {
                site: attribute(&chain, &[]).site,
                chain,
                figures: stack.figures.clone(),
                profile: index,
                truncated: stack.truncated,
            }
        }));
    }
    rows
}
