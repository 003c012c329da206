//! One of the compared traces: its sites, with the keys by which another build can be searched for
//! each.

use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;

use larder_base::printable;
use rustc_hash::FxHashMap;

use super::figures::Figure;
use crate::reading::Analysis;
use crate::reading::attribute::functions;
use crate::reading::image::ImageReport;
use crate::reading::naming::without_start;
use crate::reading::resolve::{ChainFrame, ModuleLabel};
use crate::reading::sites::{By, Site, SiteTable, SortKey};

/// Callers beyond the nearest that are keys of a site.
const CALLERS_KEPT: usize = 5;

/// A trace and its sites.
pub struct Side<'a> {
    pub analysis: &'a Analysis,
    /// The name that the user gave, printable.
    pub trace: String,
    pub sites: Vec<KnownSite<'a>>,
}

/// A site, with its keys.
pub struct KnownSite<'a> {
    pub site: &'a Site,
    /// `None`: the trace holds counters and not calls.
    pub peak_bytes: Option<u64>,
    /// The same for all versions of one library, and for both builds of a program.
    pub module: Rc<str>,
    /// The name without suffixes of clones, numbers of closures and hashes; `None`: not known.
    pub function: Option<Rc<str>>,
    /// The file's name without its directories.
    pub file_name: Option<Rc<str>>,
    /// The function that contains the machine code, if the site's own was inlined.
    pub inlined_into: Option<Rc<str>>,
    /// The nearest callers, of all stacks that are kept.
    pub callers: BTreeSet<Rc<str>>,
    /// The nearest callers and some beyond.
    pub ancestors: BTreeSet<Rc<str>>,
    /// Functions between the site and the allocator.
    pub callees: BTreeSet<Rc<str>>,
}

impl KnownSite<'_> {
    /// What it calls, if it is known by that.
    pub fn call(&self) -> Option<Rc<str>> {
        match &self.site.by {
            By::Call(name) => Some(name.clone()),
            _ => None,
        }
    }

    pub fn figure(&self, key: SortKey) -> Figure {
        Figure {
            value: self.site.weight(key),
            variance: self.site.sums.variances[key as usize],
        }
    }

    /// Its index among the sites of its function.
    pub fn order(&self) -> (Option<u32>, u64) {
        (self.site.line, self.site.address)
    }
}

/// Maps the names of executables to a name for both builds.
pub type Aliases = FxHashMap<String, Rc<str>>;

impl<'a> Side<'a> {
    pub fn new(
        analysis: &'a Analysis,
        sites: &'a SiteTable,
        trace: &Path,
        aliases: &Aliases,
    ) -> Self {
        let mut names = Names::default();
        let known = sites.ranked(SortKey::Calls).into_iter();
        Self {
            analysis,
            trace: printable::name(trace),
            sites: known
                .map(|site| KnownSite {
                    peak_bytes: sites.at_peak(site),
                    ..know(site, aliases, &mut names)
                })
                .collect(),
        }
    }
}

/// Function names in the form that builds share; each distinct name is converted once.
#[derive(Default)]
pub struct Names(FxHashMap<Rc<str>, Rc<str>>);

impl Names {
    pub fn of(&mut self, frame: &ChainFrame) -> Option<Rc<str>> {
        let function = frame.source.function.as_ref()?;
        Some(self.common(&function.name))
    }

    fn common(&mut self, name: &Rc<str>) -> Rc<str> {
        let common = self.0.entry(name.clone());
        common.or_insert_with(|| common_name(name).into()).clone()
    }
}

fn know<'a>(site: &'a Site, aliases: &Aliases, names: &mut Names) -> KnownSite<'a> {
    let mut known = KnownSite {
        site,
        peak_bytes: None,
        module: site
            .module
            .as_ref()
            .map_or("".into(), |m| module_name(m, aliases)),
        function: site.function.as_ref().map(|name| names.common(name)),
        file_name: site.file.as_ref().map(|file| file_name(file).into()),
        inlined_into: None,
        callers: BTreeSet::new(),
        ancestors: BTreeSet::new(),
        callees: BTreeSet::new(),
    };
    let stacks = SortKey::ALL.iter().filter_map(|key| site.heaviest(*key));
    for stack in stacks {
        let frames: Vec<&ChainFrame> = functions(&stack.chain).collect();
        let Some(index) = stack.site.filter(|index| *index < frames.len()) else {
            continue;
        };
        let below = frames[..index].iter().filter(|frame| !frame.family);
        known
            .callees
            .extend(below.filter_map(|frame| names.of(frame)));
        if frames[index].source.inlined {
            let physical = frames[index..].iter().find(|frame| !frame.source.inlined);
            known.inlined_into = physical.and_then(|frame| names.of(frame));
        }
        let end = without_start(&frames).len().max(index + 1);
        let above = frames[index + 1..end]
            .iter()
            .filter(|frame| !frame.is_passed_over());
        let mut above = above.filter_map(|frame| names.of(frame)).take(CALLERS_KEPT);
        if let Some(caller) = above.next() {
            known.ancestors.insert(caller.clone());
            known.callers.insert(caller);
        }
        known.ancestors.extend(above);
    }
    known
}

/// Pairs the executables that only one side has, in the order of their start: two builds of a program
/// may have different names.
pub fn pair_executables(analyses: &[Analysis]) -> Aliases {
    let name = |image: &ImageReport| {
        let path = printable::escape_bytes(&image.process.executable);
        file_name(&path).to_owned()
    };
    let all: Vec<Vec<String>> = analyses
        .iter()
        .map(|analysis| analysis.images.iter().map(name).collect())
        .collect();
    let mut aliases = Aliases::default();
    let Some((last, earlier)) = all.split_last() else {
        return aliases;
    };
    for side in earlier {
        let only = |names: &[String], other: &[String]| {
            let mut only: Vec<String> = Vec::new();
            for name in names {
                if !other.contains(name) && !only.contains(name) {
                    only.push(name.clone());
                }
            }
            only
        };
        for (name, common) in only(side, last).into_iter().zip(only(last, side)) {
            aliases.insert(name, common.as_str().into());
        }
    }
    aliases
}

pub fn module_name(module: &ModuleLabel, aliases: &Aliases) -> Rc<str> {
    let alias = aliases.get(&module.name).cloned();
    alias.unwrap_or_else(|| unversioned(&module.name).into())
}

/// A library's name without its version: `libcurl.so` of `libcurl.so.4.7`, `libx.so` of
/// `libx-2.1.so`.
fn unversioned(name: &str) -> String {
    let Some(at) = name.find(".so") else {
        return name.to_owned();
    };
    let stem = &name[..at];
    let plain = stem.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let plain = plain.strip_suffix('-').filter(|plain| !plain.is_empty());
    format!("{}.so", plain.unwrap_or(stem))
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// A demangled name without the parts that differ from build to build: suffixes of a compiler's clones,
/// and numbers of closures.
fn common_name(name: &str) -> String {
    const SUFFIXES: [&str; 8] = [
        "constprop",
        "isra",
        "part",
        "cold",
        "lto_priv",
        "llvm",
        "clone",
        "localalias",
    ];
    let mut rest = name;
    while let Some((head, suffix)) = rest.rsplit_once('.') {
        let digits = !suffix.is_empty() && suffix.bytes().all(|byte| byte.is_ascii_digit());
        if head.is_empty() || !(digits || SUFFIXES.contains(&suffix)) {
            break;
        }
        rest = head;
    }
    let mut out = String::with_capacity(rest.len());
    let mut parts = rest.split('#');
    out.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let after = part.trim_start_matches(|c: char| c.is_ascii_digit());
        if !(after.len() < part.len() && after.starts_with('}')) {
            out.push('#');
            out.push_str(part);
            continue;
        }
        out.push_str(after);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_what_a_build_adds() {
        for (name, common) in [
            ("parse", "parse"),
            ("parse.constprop.0", "parse"),
            ("parse.isra.0.cold", "parse"),
            ("parse.part.12.lto_priv.3", "parse"),
            ("work::{closure#0}", "work::{closure}"),
            ("f::{lambda()#12}::operator()", "f::{lambda()}::operator()"),
            ("scale<1.5>", "scale<1.5>"),
            ("a#b#7c", "a#b#7c"),
            (".0", ".0"),
            ("", ""),
        ] {
            assert_eq!(common_name(name), common, "{name}");
        }
    }

    #[test]
    fn libraries_are_the_same_in_all_their_versions() {
        for (name, common) in [
            ("libcurl.so.4.7.0", "libcurl.so"),
            ("libx-2.1.so", "libx.so"),
            ("libx264.so.164", "libx264.so"),
            ("curl", "curl"),
            ("-1.so", "-1.so"),
        ] {
            assert_eq!(unversioned(name), common, "{name}");
        }
    }
}
