//! A finding, and helpers of the detectors: which origins belong to one source line, and the names of
//! functions.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use larder_base::order;
use rustc_hash::FxHashMap;

use super::claim::Claim;
use super::facts::{ImageFacts, Site};
use super::sizes::Sizes;
use crate::reading::attribute::functions;
use crate::reading::naming::{frame_name, frame_place, function_name};
use crate::reading::plumbing::ModuleRole;
use crate::reading::resolve::ChainFrame;
use crate::reading::sites::SiteStack;

/// A pattern with fewer blocks is chance.
pub const FEWEST_BLOCKS: u64 = 8;

/// The patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pattern {
    Stack,
    Reuse,
    Arena,
    Array,
    InLibrary,
    Reserve,
    GrowByFactor,
    Embed,
    Inline,
    MakeShared,
    Tiny,
    Alias,
    Threads,
    Growing,
    Leak,
    Duplicates,
    Copied,
    Zeroed,
    Hot,
}

impl Pattern {
    /// The name in JSON and in `--only`.
    pub fn id(self) -> &'static str {
        match self {
            Pattern::Stack => "stack",
            Pattern::Reuse => "reuse",
            Pattern::Arena => "arena",
            Pattern::Array => "array",
            Pattern::InLibrary => "in-library",
            Pattern::Reserve => "reserve",
            Pattern::GrowByFactor => "grow-by-factor",
            Pattern::Embed => "embed",
            Pattern::Inline => "inline",
            Pattern::MakeShared => "make-shared",
            Pattern::Tiny => "tiny",
            Pattern::Alias => "alias",
            Pattern::Threads => "threads",
            Pattern::Growing => "growing",
            Pattern::Leak => "leak",
            Pattern::Duplicates => "duplicates",
            Pattern::Copied => "copied",
            Pattern::Zeroed => "zeroed",
            Pattern::Hot => "hot",
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Pattern::Stack => "Use the stack",
            Pattern::Reuse => "Reuse one buffer",
            Pattern::Arena => "Take all from one arena",
            Pattern::Array => "Make one array",
            Pattern::InLibrary => "Call it less, or keep its state",
            Pattern::Reserve => "Reserve the final size",
            Pattern::GrowByFactor => "Grow by a factor",
            Pattern::Embed => "Embed one in the other",
            Pattern::Inline => "Store few elements inline",
            Pattern::MakeShared => "Use std::make_shared",
            Pattern::Tiny => "Embed or pool tiny blocks",
            Pattern::Alias => "Shift arrays that alias",
            Pattern::Threads => "Free on the thread that allocated",
            Pattern::Growing => "Bound what grows",
            Pattern::Leak => "Free what is left",
            Pattern::Duplicates => "Share what is equal",
            Pattern::Copied => "Use the first, do not copy it",
            Pattern::Zeroed => "Zero nothing that is overwritten",
            Pattern::Hot => "Busy, and no pattern fits",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    Low,
    Medium,
    High,
}

impl Confidence {
    pub fn name(self) -> &'static str {
        match self {
            Confidence::Low => "low",
            Confidence::Medium => "medium",
            Confidence::High => "high",
        }
    }

    /// One level lower.
    pub fn weaker(self) -> Self {
        match self {
            Confidence::High => Confidence::Medium,
            Confidence::Medium | Confidence::Low => Confidence::Low,
        }
    }

    /// A suspicion ranks after a certain finding.
    pub fn trust(self) -> f64 {
        match self {
            Confidence::Low => 0.1,
            Confidence::Medium => 0.8,
            Confidence::High => 1.0,
        }
    }
}

/// The part of one origin that a finding would save.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Index into `ImageFacts::sites`.
    pub origin: usize,
    pub calls: u64,
    pub bytes: u64,
}

/// A function that could keep an object, if its blocks are as many as another's, in all and at once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Keeper {
    pub function: String,
    pub blocks: u64,
    pub at_once: u64,
}

#[derive(Debug)]
pub struct Finding {
    pub pattern: Pattern,
    /// The origin whose line is named; the heaviest of its place.
    pub site: usize,
    /// More origins to show, like the other one of a pair.
    pub related: Vec<usize>,
    pub parts: Vec<Part>,
    /// The bytes that the peak, or the end, would have less.
    pub memory_bytes: u64,
    /// The function that could keep freed blocks for its next call, with the number of blocks that it
    /// allocates.
    pub keeper: Option<Keeper>,
    pub evidence: Vec<Claim>,
    pub cure: String,
    /// A size to use in the cure, where there is one.
    pub size_bytes: Option<u64>,
    pub confidence: Confidence,
}

/// Of findings that let a function keep plain memory, or cache it, 14 of 42 were judged worth a change, of
/// the others 85 to 90 % (docs/measurements/advice-judged.md). An arena suits if other runs free together, too.
const KEPT_TRUST: f64 = 0.4;

impl Finding {
    /// See `Confidence::trust`.
    pub fn trust(&self, image: &ImageFacts) -> f64 {
        let is_plain = || image.sites[self.site].container.is_none();
        match (self.pattern, self.confidence) {
            (Pattern::Reuse, Confidence::Medium) if is_plain() => KEPT_TRUST,
            (Pattern::Arena, Confidence::Medium) => KEPT_TRUST,
            _ => self.confidence.trust(),
        }
    }

    pub fn calls(&self) -> u64 {
        self.parts.iter().map(|part| part.calls).sum()
    }

    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).sum()
    }
}

impl Finding {
    /// Calls and bytes of all its blocks, saved or not.
    pub fn blocks(&self, image: &ImageFacts) -> (u64, u64) {
        let sums = self.parts.iter().map(|part| &image.sites[part.origin].sums);
        sums.fold((0, 0), |(calls, bytes), sums| {
            (calls + sums.calls, bytes.saturating_add(sums.bytes))
        })
    }
}

/// All of an origin's calls and bytes.
pub fn whole(image: &ImageFacts, origin: usize) -> Part {
    let sums = &image.sites[origin].sums;
    Part {
        origin,
        calls: sums.calls,
        bytes: sums.bytes,
    }
}

/// All requests of buffers that were allocated at these origins: the origins first, then their
/// reallocs.
pub fn buffers_whole(image: &ImageFacts, origins: &[usize]) -> Vec<Part> {
    let mut parts: Vec<Part> = origins.iter().map(|origin| began(image, *origin)).collect();
    let mut steps: BTreeMap<usize, u64> = BTreeMap::new();
    for origin in origins {
        for (step, calls) in &image.sites[*origin].facts.buffers.steps {
            *steps.entry(*step as usize).or_default() += calls;
        }
    }
    for (origin, calls) in steps {
        let sums = &image.sites[origin].sums;
        let bytes = sums.bytes as f64 * calls as f64 / sums.calls.max(1) as f64;
        parts.push(Part {
            origin,
            calls,
            bytes: bytes as u64,
        });
    }
    parts
}

/// The share of these buffers' requests of those that never exceeded `most` bytes. `sizes`: of all of
/// them.
pub fn buffers_up_to(image: &ImageFacts, origins: &[usize], sizes: &Sizes, most: u64) -> Vec<Part> {
    let mut parts = buffers_whole(image, origins);
    let share = sizes.up_to(most) as f64 / sizes.total().max(1) as f64;
    for part in parts.iter_mut().filter(|_| share < 1.0) {
        part.calls = (part.calls as f64 * share) as u64;
        part.bytes = (part.bytes as f64 * share) as u64;
    }
    parts
}

/// An origin's calls that allocate a buffer.
fn began(image: &ImageFacts, origin: usize) -> Part {
    let all = whole(image, origin);
    let calls = image.sites[origin].facts.buffers.begun.min(all.calls);
    let bytes = all.bytes as f64 * calls as f64 / all.calls.max(1) as f64;
    Part {
        origin,
        calls,
        bytes: bytes as u64,
    }
}

/// The origins of a finding that saves none of their calls.
pub fn no_calls(image: &ImageFacts, origins: &[usize]) -> Vec<Part> {
    let part = |origin: &usize| Part {
        calls: 0,
        bytes: 0,
        ..whole(image, *origin)
    };
    origins.iter().map(part).collect()
}

/// The number of a source line, or of a function or address without one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(u32);

/// Numbers places, each frame once. The frames outlive it.
#[derive(Debug, Default)]
pub struct Places {
    by_frame: FxHashMap<*const ChainFrame, Place>,
    by_key: HashMap<PlaceKey, Place>,
}

impl Places {
    pub fn of(&mut self, frame: Option<&ChainFrame>) -> Place {
        let at = frame.map_or(std::ptr::null(), std::ptr::from_ref);
        if let Some(place) = self.by_frame.get(&at) {
            return *place;
        }
        let next = Place(self.by_key.len() as u32);
        let place = *self.by_key.entry(PlaceKey::of(frame)).or_insert(next);
        self.by_frame.insert(at, place);
        place
    }
}

/// The identity of a place.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PlaceKey {
    /// The address of the label, which is unique to the module.
    module: usize,
    function: Option<Rc<str>>,
    file: Option<Rc<str>>,
    line: Option<u32>,
    address: u64,
}

impl PlaceKey {
    fn of(frame: Option<&ChainFrame>) -> Self {
        let source = frame.map(|frame| &frame.source);
        let line = source.and_then(|source| source.line);
        Self {
            module: frame.map_or(0, |frame| Rc::as_ptr(&frame.module) as usize),
            // A constructor has one name and several symbols, none where it is inlined.
            function: source.and_then(|source| source.function.as_ref()).map(
                |function| match line {
                    Some(_) => function.full.clone(),
                    None => function.symbol.clone(),
                },
            ),
            file: source.and_then(|source| source.file.clone()),
            line,
            address: frame
                .filter(|_| line.is_none())
                .map_or(0, |frame| frame.address),
        }
    }
}

impl Site {
    /// All functions of the stack, innermost first.
    pub fn functions(&self) -> Vec<&ChainFrame> {
        functions(&self.chain).collect()
    }

    pub fn stack(&self) -> SiteStack {
        SiteStack {
            chain: self.chain.clone(),
            site: self.site,
        }
    }

    pub fn site_frame(&self) -> Option<&ChainFrame> {
        functions(&self.chain).nth(self.site?)
    }

    /// The caller of the charged function.
    pub fn caller_frame(&self) -> Option<&ChainFrame> {
        functions(&self.chain).nth(self.site? + 1)
    }

    /// `function  file:line`.
    pub fn shown(&self) -> String {
        self.site_frame().map_or_else(
            || "[no stack]".to_owned(),
            |frame| format!("{}  {}", frame_name(frame), frame_place(frame)),
        )
    }

    pub fn function_name(&self) -> String {
        self.site_frame()
            .map_or_else(|| "[no stack]".to_owned(), function_name)
    }

    /// The function of the C library, or of Rust's for the system, that allocated the block for itself,
    /// or to return it: opendir, getaddrinfo.
    pub fn library_function(&self) -> Option<String> {
        let below: Vec<&ChainFrame> = functions(&self.chain).take(self.site?).collect();
        let library = |frame: &&&ChainFrame| {
            let role = frame.module.role == ModuleRole::System;
            let c = role && !larder_base::printable::name(&frame.module.path).contains("c++");
            let file = frame.source.file.as_deref().unwrap_or_default();
            c || (file.contains("library/std/src/") && !file.contains("/collections/"))
        };
        let outermost = below.iter().rev().find(library)?;
        Some(crate::reading::naming::function_name(outermost))
    }

    /// Whether a function of the program that allocates it also resizes blocks.
    pub fn is_resizable(&self) -> bool {
        let below = functions(&self.chain).take(self.site.unwrap_or(0));
        let own = below.filter(|frame| frame.module.role != ModuleRole::System);
        let names = own.filter_map(|frame| frame.source.function.as_ref());
        let mut names = names.map(|function| function.name.to_lowercase());
        self.call_name.contains("realloc")
            || names.any(|name| name.contains("realloc") || name.contains("resize"))
    }

    /// Whether it copies a text, of any length, by a function of the program or of the C library.
    pub fn copies_text(&self) -> bool {
        let below = functions(&self.chain).take(self.site.unwrap_or(0));
        let mut names = below.filter_map(|frame| frame.source.function.as_ref());
        let is_dup = |name: &str| name.to_lowercase().contains("dup");
        is_dup(self.call_name) || names.any(|function| is_dup(&function.name))
    }
}

/// The class of the C++ or Rust library that a function is a part of: by name only if it is not a part of another class.
pub fn container_of(frame: &ChainFrame) -> Option<&'static str> {
    *frame.container.get_or_init(|| class_of(frame))
}

fn class_of(frame: &ChainFrame) -> Option<&'static str> {
    const NAMES: &[(&str, &str)] = &[
        ("__shared_count", "std::shared_ptr"),
        ("basic_string", "std::string"),
        ("std::vector", "std::vector"),
        ("_Vector_base", "std::vector"),
        ("_Rb_tree", "std::map or std::set"),
        ("std::map", "std::map or std::set"),
        ("std::set", "std::map or std::set"),
        (
            "std::unordered_",
            "std::unordered_map or std::unordered_set",
        ),
        ("std::list", "std::list"),
        ("_Hashtable", "std::unordered_map or std::unordered_set"),
        ("_Deque", "std::deque"),
        ("std::deque", "std::deque"),
        ("_List", "std::list"),
        ("std::function", "std::function"),
        ("_Function_base", "std::function"),
        ("alloc::rc::Rc", "Rc"),
        ("alloc::sync::Arc", "Arc"),
        ("alloc::str", "String"),
        ("alloc::vec", "Vec"),
        ("alloc::raw_vec", "Vec"),
        ("std::collections::hash", "HashMap"),
        ("hashbrown", "HashMap"),
        ("alloc::collections::btree", "BTreeMap"),
    ];
    // Where names have no paths.
    const FILES: &[(&str, &str)] = &[
        ("library/alloc/src/str", "String"),
        ("library/alloc/src/vec/", "Vec"),
        ("library/alloc/src/raw_vec", "Vec"),
        ("library/alloc/src/collections/btree/", "BTreeMap"),
        ("/hashbrown-", "HashMap"),
    ];
    let in_name = |name: &str| {
        let found = NAMES
            .iter()
            .filter_map(|(part, class)| Some((name.find(part)?, *class)));
        found.min_by_key(|(at, _)| *at).map(|(_, class)| class)
    };
    let in_file = |file: &str| {
        let found = FILES.iter().find(|(part, _)| file.contains(part));
        found.map(|(_, class)| *class)
    };
    let name = frame.source.function.as_ref()?;
    in_name(&name.full).or_else(|| in_file(frame.source.file.as_deref()?))
}

/// Origins grouped by `key`, those of each group heaviest first, groups in the order of their first
/// origin. Origins without a key or a stack are left out.
pub fn grouped_by<K: std::hash::Hash + Eq>(
    image: &ImageFacts,
    mut key: impl FnMut(usize, &Site) -> Option<K>,
) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut by_key: FxHashMap<K, usize> = FxHashMap::default();
    let named = image.sites.iter().enumerate();
    for (index, site) in named.filter(|(_, site)| site.site.is_some()) {
        if let Some(key) = key(index, site) {
            let group = *by_key.entry(key).or_insert_with(|| {
                groups.push(Vec::new());
                groups.len() - 1
            });
            groups[group].push(index);
        }
    }
    for group in groups.iter_mut().filter(|group| group.len() > 1) {
        let calls = |index: &usize| Reverse(image.sites[*index].sums.calls);
        // Each key once: the sites are far apart in memory.
        let keys: Vec<Reverse<u64>> = group.iter().map(calls).collect();
        order::sort_by_keys(group, &keys);
    }
    groups
}
