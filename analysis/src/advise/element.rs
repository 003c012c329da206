//! The type that a site allocates: the element of a library's container, or the type that the source
//! line names. It is reported only if the recorded sizes agree with it.
//!
//! `symbols::types` reads the debug information of the site's compilation unit, in one pass over the
//! unit; each address is looked up once. Types of one byte are not reported, because their sizes are
//! enough. Memory: a type an address.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::rc::Rc;

use larder_base::number::{counted, grouped};
use larder_base::printable::escape;
use larder_base::regular::open_regular;
use rustc_hash::FxHashMap;

use super::facts::{ImageFacts, Site};
use super::finding::Finding;
use super::sizes::Sizes;
use super::statement::{LINES_BEFORE, LINES_BEHIND, mentions};
use crate::reading::attribute::functions;
use crate::reading::chain::Location;
use crate::reading::plumbing::ModuleRole;
use crate::reading::resolve::{ChainFrame, Resolver};
use crate::symbols::shorten::shorten;
use crate::symbols::source::FoundSource;
use crate::symbols::types::{CodePlace, ModuleTypes, NamedType};

/// Endings of source files that are parsed.
const C_FILES: &[&str] = &[
    "c", "h", "cc", "cpp", "cxx", "C", "hh", "hpp", "hxx", "inl", "ipp", "tcc", "y", "l",
];
/// Larger source files are not read.
const MOST_SOURCE_BYTES: u64 = 32 << 20;
const READ_BYTES: usize = 64 << 10;

/// The type of a site's allocations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocatedType {
    pub name: String,
    pub size_bytes: u64,
    /// Whether a block may hold several.
    pub several: bool,
}

impl AllocatedType {
    /// The text of a report.
    pub fn describe(&self) -> String {
        let size = counted(self.size_bytes, "byte");
        let name = shown(&self.name);
        if self.several {
            format!("elements of {name} ({size})")
        } else {
            format!("allocates {name} ({size})")
        }
    }
}

/// The unit of sizes: elements of a type, or bytes if none is known.
pub struct SizeUnit(Option<AllocatedType>);

impl SizeUnit {
    /// `20 elements of int (80 bytes)`: as many elements as fit.
    pub fn in_full(&self, bytes: u64) -> String {
        let Some(found) = &self.0 else {
            return format!("{} bytes", grouped(bytes));
        };
        let elements = bytes / found.size_bytes.max(1);
        format!(
            "{} of {} ({})",
            counted(elements, "element"),
            shown(&found.name),
            counted(elements.saturating_mul(found.size_bytes), "byte"),
        )
    }

    /// Bytes of an element.
    pub fn size_bytes(&self) -> Option<u64> {
        self.0.as_ref().map(|found| found.size_bytes)
    }

    /// `20 elements`.
    pub fn in_short(&self, bytes: u64) -> String {
        match &self.0 {
            Some(found) => counted(bytes / found.size_bytes.max(1), "element"),
            None => format!("{} bytes", grouped(bytes)),
        }
    }
}

/// The type at an address, before any size is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Suspect {
    named: NamedType,
    /// Whether each block has one.
    single: bool,
}

impl Suspect {
    fn checked(&self, smallest: u64, largest: u64) -> Option<AllocatedType> {
        let size = self.named.size_bytes;
        let alone = smallest == size && largest == size;
        let fits = alone
            || (!self.single
                && smallest > 0
                && [smallest, largest].map(|seen| seen % size) == [0, 0]);
        (size > 1 && fits).then(|| AllocatedType {
            name: self.named.name.clone(),
            size_bytes: size,
            several: !alone,
        })
    }
}

type Suspects = Rc<[Suspect]>;

/// The types of a trace's sites, looked up on first use.
pub struct Types<'a> {
    resolver: &'a Resolver,
    /// By the module's path.
    known: RefCell<FxHashMap<(String, CodePlace), Suspects>>,
}

impl<'a> Types<'a> {
    pub fn new(resolver: &'a Resolver) -> Self {
        Self {
            resolver,
            known: RefCell::default(),
        }
    }

    /// The type that the line of a finding allocates.
    pub fn of_finding(&self, image: &ImageFacts, finding: &Finding) -> Option<AllocatedType> {
        let place = image.sites[finding.site].place;
        let parts = finding.parts.iter().map(|part| part.origin);
        let of_place = parts.filter(|origin| image.sites[*origin].place == place);
        let mut origins: Vec<usize> = of_place.chain([finding.site]).collect();
        origins.sort_unstable();
        origins.dedup();
        self.of_all(image, &origins)
    }

    /// The one type that all these origins allocate, whose sizes are those of their blocks.
    fn of_all(&self, image: &ImageFacts, origins: &[usize]) -> Option<AllocatedType> {
        let mut sites = origins.iter().map(|origin| &image.sites[*origin]);
        let mut found = self.of(sites.next()?)?;
        for site in sites {
            let other = self.of(site)?;
            if other.name != found.name || other.size_bytes != found.size_bytes {
                return None;
            }
            found.several |= other.several;
        }
        Some(found)
    }

    /// The unit for the sizes of buffers that grew: elements, if the final sizes agree with the type,
    /// too.
    pub fn unit_of_grown(&self, image: &ImageFacts, origins: &[usize], finals: &Sizes) -> SizeUnit {
        let whole = |bytes: u64, size: u64| bytes > 0 && bytes.is_multiple_of(size);
        let seen = [finals.smallest(), finals.largest()];
        let found = self.of_all(image, origins);
        SizeUnit(found.filter(|found| seen.iter().all(|bytes| whole(*bytes, found.size_bytes))))
    }

    pub fn of(&self, site: &Site) -> Option<AllocatedType> {
        let sizes = &site.facts.sizes;
        let (smallest, largest) = (sizes.smallest(), sizes.largest());
        let suspects = self.suspects(site)?;
        let fitting = suspects.iter().filter_map(|s| s.checked(smallest, largest));
        let mut fitting: Vec<AllocatedType> = fitting.collect();
        let first = fitting.pop()?;
        fitting.iter().all(|other| *other == first).then_some(first)
    }

    /// The name of the structure that the charged line calls a function to make, if each block is one: the line gives
    /// no size, and may not even know it. For C and C++.
    pub fn made_for(&self, site: &Site) -> Option<String> {
        let frame = site.site_frame()?;
        let path = Path::new(&**frame.source.file.as_ref()?);
        if !C_FILES.contains(&path.extension()?.to_str()?) {
            return None;
        }
        let callee = self.resolver.callee(frame)?;
        let made = self.resolver.types(frame)?.of_result(callee)?;
        let sizes = &site.facts.sizes;
        let alone = [sizes.smallest(), sizes.largest()] == [made.size_bytes; 2];
        alone.then(|| shown(&made.name))
    }

    /// Whether the file of the charged line has a function of Rust that empties an object for its next use.
    pub fn can_be_cleared(&self, site: &Site) -> bool {
        const CLEARS: &[&str] = &["fn clear(&mut self", "fn reset(&mut self"];
        let text = || {
            let source = self.resolver.source(site.site_frame()?)?;
            let file = open_regular(&source.path).ok()?;
            let mut text = String::new();
            file.take(MOST_SOURCE_BYTES)
                .read_to_string(&mut text)
                .ok()?;
            Some(text)
        };
        text().is_some_and(|text| CLEARS.iter().any(|function| text.contains(function)))
    }

    /// The first type found at the addresses from the allocator outward.
    fn suspects(&self, site: &Site) -> Option<Suspects> {
        let charged = site.site?;
        let mut inner = 0;
        for location in &site.chain {
            let first = location.first()?;
            let place = CodePlace {
                address: first.address,
                depth: (charged - inner).min(location.len()),
                functions: location.len(),
            };
            let is_last = place.depth < place.functions;
            if first.module.role == ModuleRole::Program {
                let by_source = is_last && only_family(site, charged);
                let found = self.known(location, place, by_source);
                if !found.is_empty() {
                    return Some(found);
                }
            }
            if is_last {
                return None;
            }
            inner += location.len();
        }
        None
    }

    /// The text of a frame's line, if its source is found.
    pub fn line(&self, frame: &ChainFrame) -> Option<String> {
        let line = usize::try_from(frame.source.line?).ok()?;
        let file = open_regular(&self.resolver.source(frame)?.path).ok()?;
        lines(file.take(MOST_SOURCE_BYTES), line, line)
    }

    fn known(&self, location: &Location, place: CodePlace, by_source: bool) -> Suspects {
        let Some(first) = location.first() else {
            return Rc::default();
        };
        let key = (first.module.path.clone(), place);
        if let Some(known) = self.known.borrow().get(&key) {
            return known.clone();
        }
        let find = || {
            let types = self.resolver.types(first)?;
            if let Some(named) = types.of_template(place) {
                let single = false;
                return Some(vec![Suspect { named, single }]);
            }
            let frame = location.get(place.depth).filter(|_| by_source)?;
            of_source(types, frame, self.resolver.source(frame)?, place)
        };
        let found: Suspects = find().unwrap_or_default().into();
        self.known.borrow_mut().insert(key, found.clone());
        found
    }
}

/// Whether the site's line allocates directly: below it are only the malloc family and wrappers of it,
/// not the library's own code.
fn only_family(site: &Site, charged: usize) -> bool {
    functions(&site.chain).take(charged).all(|frame| {
        let function = frame.source.function.as_ref();
        let of_library = || function.is_some_and(|function| function.name.contains("::"));
        frame.family || (frame.module.role != ModuleRole::System && !of_library())
    })
}

/// The types on the source line of a frame, if the debug information has all of them. A source file
/// that is newer than the debug information is not the compiled one.
fn of_source(
    types: ModuleTypes<'_>,
    frame: &ChainFrame,
    source: FoundSource,
    place: CodePlace,
) -> Option<Vec<Suspect>> {
    let line = usize::try_from(frame.source.line?).ok()?;
    let FoundSource { path, is_compiled } = source;
    let named = Path::new(&**frame.source.file.as_ref()?);
    let extension = named.extension()?.to_str()?;
    if !C_FILES.contains(&extension) {
        return None;
    }
    let file = open_regular(&path).ok()?;
    let about = file.metadata().ok()?;
    let is_newer = !is_compiled && about.modified().ok()? > types.modified()?;
    if is_newer || about.len() > MOST_SOURCE_BYTES {
        return None;
    }
    let first = line.saturating_sub(LINES_BEFORE).max(1);
    let source = lines(
        file.take(MOST_SOURCE_BYTES),
        first,
        line.saturating_add(LINES_BEHIND),
    )?;
    let mentions = mentions(&source, line + 1 - first).into_iter();
    let suspects = mentions.map(|mention| {
        Some(Suspect {
            named: types.of_expression(place, &mention.expression)?,
            single: mention.single,
        })
    });
    suspects.collect()
}

/// A range of a file's lines, counted from 1. Takes memory for these alone.
fn lines(file: impl Read, first: usize, last: usize) -> Option<String> {
    let mut file = BufReader::with_capacity(READ_BYTES, file);
    for _ in 1..first {
        if file.skip_until(b'\n').ok()? == 0 {
            return Some(String::new());
        }
    }
    let mut text = Vec::new();
    for _ in first..=last {
        file.read_until(b'\n', &mut text).ok()?;
    }
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// A name without default template arguments, and with text for the library's own nodes.
fn shown(name: &str) -> String {
    let text = shorten(name);
    const NODES: &[(&str, &str)] = &[
        ("std::_Sp_counted_ptr_inplace<", "std::make_shared"),
        ("std::_Rb_tree_node<", "a node of std::map or std::set"),
        (
            "std::__detail::_Hash_node<",
            "a node of std::unordered_map or std::unordered_set",
        ),
        ("std::_List_node<", "a node of std::list"),
        ("std::_Fwd_list_node<", "a node of std::forward_list"),
    ];
    let found = NODES.iter().find_map(|(class, words)| {
        let arguments = text.strip_prefix(class)?;
        let held = &arguments[..argument_end(arguments)?];
        Some(match *words {
            "std::make_shared" => format!("{held} with the counts of std::make_shared"),
            words => format!("{words} with {held}"),
        })
    });
    escape(&found.unwrap_or(text)).into_owned()
}

/// The end of the first of some template arguments.
fn argument_end(arguments: &str) -> Option<usize> {
    let mut depth = 0usize;
    arguments.char_indices().find_map(|(at, c)| {
        match c {
            '<' | '(' => depth += 1,
            ',' | '>' if depth == 0 => return Some(at),
            '>' | ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suspect(size_bytes: u64, single: bool) -> Suspect {
        let name = "Foo".to_owned();
        Suspect {
            named: NamedType { name, size_bytes },
            single,
        }
    }

    #[test]
    fn a_type_is_reported_only_if_the_sizes_agree() {
        let several =
            |suspect: Suspect, smallest, largest| Some(suspect.checked(smallest, largest)?.several);
        assert_eq!(several(suspect(48, true), 48, 48), Some(false));
        assert_eq!(several(suspect(48, false), 48, 48), Some(false));
        assert_eq!(several(suspect(48, false), 48, 480), Some(true));
        assert_eq!(several(suspect(48, true), 48, 480), None);
        assert_eq!(several(suspect(48, false), 48, 481), None);
        assert_eq!(several(suspect(48, false), 0, 48), None);
        assert_eq!(several(suspect(1, false), 1, 48), None);
    }

    #[test]
    fn only_the_lines_asked_for_are_read() {
        let text = "1\n2\n3\n4\n5";
        let read = |first, last| lines(text.as_bytes(), first, last).unwrap();
        assert_eq!(read(1, 2), "1\n2\n");
        assert_eq!(read(3, 9), "3\n4\n5");
        assert_eq!(read(8, 9), "");
    }

    #[test]
    fn sizes_are_printed_in_whole_elements() {
        let found = suspect(4, false).checked(4, 80).unwrap();
        assert_eq!(found.describe(), "elements of Foo (4 bytes)");
        let unit = SizeUnit(Some(found));
        assert_eq!(unit.in_full(83), "20 elements of Foo (80 bytes)");
        assert_eq!(unit.in_full(4), "1 element of Foo (4 bytes)");
        assert_eq!(unit.in_short(80), "20 elements");
        assert_eq!(SizeUnit(None).in_full(8192), "8,192 bytes");
    }

    #[test]
    fn names_lose_what_is_the_default() {
        let string =
            "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >";
        assert_eq!(shown(string), "std::string");
        assert_eq!(
            shown(&format!(
                "std::_Rb_tree_node<std::pair<const {string}, Foo> >"
            )),
            "a node of std::map or std::set with std::pair<const std::string, Foo>"
        );
        let counted =
            "std::_Sp_counted_ptr_inplace<Foo, std::allocator<void>, (__gnu_cxx::_Lock_policy)2>";
        assert_eq!(shown(counted), "Foo with the counts of std::make_shared");
        assert_eq!(
            shown(
                "std::vector<std::vector<int, std::allocator<int> >, std::allocator<std::vector<int, std::allocator<int> > > >"
            ),
            "std::vector<std::vector<int>>"
        );
        // A cut name, or one that is not a type, is not changed.
        assert_eq!(shown("a<b, std::allocator<c"), "a<b, std::allocator<c");
        assert_eq!(shown("std::_Rb_tree_node<"), "std::_Rb_tree_node<");
    }
}
