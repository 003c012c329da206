//! Cures for blocks that live within one call, or of which few live at once.
//!
//! A trace is one run. Invariant: a cure, followed literally, is right in every run. It names the cases
//! that this run did not show (a second block while the first is in use, a callee that keeps or frees
//! it).

use larder_base::number::{counted, grouped, percent};

use super::{copies, inline};
use crate::advise::claim::Scope;
use crate::advise::facts::Site;
use crate::advise::finding::{Confidence, Pattern};
use crate::advise::sizes::Sizes;

/// A local array larger than this may overflow a small thread's stack.
const MOST_STACK_BYTES: u64 = 4096;
/// A buffer larger than this costs too much memory to keep between calls.
const MOST_KEPT_BYTES: u64 = 1 << 20;
/// With this many blocks the pattern is not chance.
const SURE_BLOCKS: u64 = 100;

/// The advice for a group of origins.
pub struct Advice {
    pub pattern: Pattern,
    pub cure: String,
    pub confidence: Confidence,
    pub size_bytes: Option<u64>,
    /// The blocks that stay.
    pub kept: Kept,
}

pub enum Kept {
    None,
    /// This many buffers stay.
    Some(u64),
    /// Buffers beyond this size stay.
    Beyond(u64),
}

/// The blocks that a cure is for.
pub struct About<'a> {
    pub site: &'a Site,
    /// The largest size of each buffer.
    pub largest: &'a Sizes,
    /// The function within whose call they live allocates one a call.
    pub once: bool,
    /// That function is the program's, and a dependency allocates them.
    pub elsewhere: bool,
    /// The function that the owner calls to free them, and which then owns them.
    pub freed_by: Option<String>,
    /// See `is_owned_elsewhere`.
    pub owned_elsewhere: bool,
}

/// A function that could lend one buffer to all its calls of another.
pub struct Lender {
    pub function: String,
    /// The lines that call the other, and how often each does.
    pub lines: usize,
    pub calls: u64,
}

/// Classes that keep their memory when they are cleared.
const CLASSES: &[&str] = &["std::string", "std::vector", "String", "Vec", "HashMap"];
/// The cases of other runs.
const UNLESS: &str = "malloc for a second while it is in use, and for what is returned, or a callee may \
                      keep, reallocate or free";
const UNLESS_LOCAL: &str = "for a second while it is in use, and for what is returned, or a callee may keep; \
                            a callee that frees or reallocates it must test that it is not the array, and \
                            copy that to enlarge it";

/// Whether it is of a class of Rust that keeps its memory: what a function frees of it was given to that function.
pub fn is_of_rust(site: &Site) -> bool {
    matches!(site.container, Some("String" | "Vec" | "HashMap"))
}

/// Whether it ends with an object that others may hold, that is in another of its type, or that holds a short text
/// better itself; or is one of any type, or what an iterator yields.
pub fn is_owned_elsewhere(site: &Site, largest: &Sizes) -> bool {
    const YIELDS: &str = "core::iter::traits::iterator::Iterator>::next";
    let function = site
        .site_frame()
        .and_then(|frame| frame.source.function.as_ref());
    let is_yielded = function.is_some_and(|function| function.full.ends_with(YIELDS));
    let any = match site.container {
        None => site.is_of_any_type(),
        Some("String") => {
            let short = largest.largest() <= inline::MOST_TEXT_BYTES;
            short && site.is_part() && !copies::is_copy(site)
        }
        Some(_) => false,
    };
    any || is_yielded || site.is_shared() || site.is_in_tree()
}

impl About<'_> {
    /// A local array cannot be freed elsewhere or enlarged.
    pub fn may_lie_on_the_stack(&self) -> bool {
        self.site.facts.buffers.steps.is_empty()
            && self.freed_by.is_none()
            && self.largest.largest() <= MOST_STACK_BYTES
            && self.site.container.is_none()
    }

    /// The confidence of cures that change the function's interface.
    fn trusted(&self) -> Confidence {
        // A buffer of this size is better freed between calls.
        let kept_for_good = self.once && self.largest.largest() > MOST_KEPT_BYTES;
        // A node is kept only by another container or an allocator, a counted object by its last reference.
        let container = self.site.container;
        let node = container.is_some_and(|class| !CLASSES.contains(&class));
        let given_away = self.freed_by.is_some() || node || self.owned_elsewhere;
        // A hash table allocates its first memory by a function of this name.
        let resizable = container != Some("HashMap") && self.site.is_resizable();
        match self.elsewhere || kept_for_good || given_away || resizable {
            true => Confidence::Low,
            false => Confidence::Medium,
        }
    }
}

fn sure(sizes: &Sizes) -> Confidence {
    if sizes.total() >= SURE_BLOCKS {
        Confidence::High
    } else {
        Confidence::Medium
    }
}

/// For blocks that are freed before the function that allocates them returns.
pub fn same(about: &About<'_>, owner: &str, lender: Option<&Lender>) -> Advice {
    let sizes = about.largest;
    let most = sizes.covering(0.99);
    let (confidence, hidden) = match &about.freed_by {
        None if about.owned_elsewhere => (Confidence::Low, String::new()),
        None => (sure(sizes), String::new()),
        Some(_) if is_of_rust(about.site) => (Confidence::Low, String::new()),
        Some(function) => (
            Confidence::Medium,
            format!("; {function} frees it today and must not"),
        ),
    };
    if most > MOST_STACK_BYTES {
        // What a caller lends is no state that outlives its call.
        let lent = lender.map_or(String::new(), |lender| {
            format!(
                "let {} lend one buffer to the {} lines that call it, or ",
                lender.function, lender.lines
            )
        });
        return Advice {
            pattern: Pattern::Reuse,
            cure: format!(
                "too large for the stack: {lent}keep one buffer for {owner}, in its object or per \
                 thread, and enlarge it when needed{}{hidden}",
                zeroed(about.site)
            ),
            confidence,
            size_bytes: Some(most),
            kept: Kept::Some(lender.map_or(1, |lender| lender.calls)),
        };
    }
    let size = match sizes.largest() {
        largest @ ..=MOST_STACK_BYTES => largest,
        _ => most,
    };
    Advice {
        pattern: Pattern::Stack,
        cure: stack_cure(about, size) + zeroed(about.site) + &hidden,
        confidence,
        size_bytes: Some(size),
        kept: Kept::Beyond(size),
    }
}

fn stack_cure(about: &About<'_>, size: u64) -> String {
    let (bytes, sizes) = (counted(size, "byte"), about.largest);
    match about.site.container {
        Some("std::string") => format!(
            "a std::string_view, or one string that is kept and assigned to, if it is not in use; the \
             longest needs {bytes}"
        ),
        Some("std::vector") => {
            format!(
                "a std::array while {bytes} are enough, or one vector that is kept and cleared, if it is \
                 not in use"
            )
        }
        Some("String" | "Vec") => format!(
            "a slice of the existing data, an array while {bytes} are enough (SmallVec, ArrayString), \
             or one that is kept and cleared, if it is not in use"
        ),
        Some("HashMap") => {
            "one HashMap that is kept and cleared, if it is not in use, or a sorted array"
                .to_owned()
        }
        Some(class) => format!("{}: {bytes}", nodes(class)),
        None if sizes.largest() > size => format!(
            "a local array of {bytes} covers {:.1} % of the calls; malloc for the larger ones, {UNLESS_LOCAL}",
            percent(sizes.up_to(size), sizes.total())
        ),
        None => format!(
            "a local array of {bytes} covers all calls; malloc for larger ones, {UNLESS_LOCAL}"
        ),
    }
}

/// For objects that a function makes for the owner, one at a time; it does not give their size.
pub fn made(about: &About<'_>, owner: &str, object: &str) -> Advice {
    let most = about.largest.largest();
    Advice {
        pattern: Pattern::Reuse,
        cure: format!(
            "let {owner} keep one {object} for its next use, if it can be reset; else malloc as today"
        ),
        confidence: Confidence::Medium,
        size_bytes: Some(most),
        kept: Kept::Some(1),
    }
}

/// For blocks that the owner's callees allocate, one at a time.
pub fn caller(about: &About<'_>, owner: &str) -> Advice {
    let sizes = about.largest;
    let largest = counted(sizes.largest(), "byte");
    let zero = zeroed(about.site);
    let keeper = match about.once {
        true => "its object, or each thread,",
        false => "it",
    };
    let cure = match about.site.container {
        Some(class) if !CLASSES.contains(&class) => nodes(class),
        Some(class) if about.once => moved(class),
        Some(class) => {
            format!("let {owner} pass in a {class} that it keeps and clears, to be filled")
        }
        None if about.may_lie_on_the_stack() => format!(
            "let {owner} lend the memory: a local array of {largest} passed down, or one buffer \
             that {keeper} keeps{zero}; {UNLESS}"
        ),
        None => format!("let {owner} pass down a buffer that {keeper} keeps{zero}; {UNLESS}"),
    };
    Advice {
        pattern: Pattern::Reuse,
        cure,
        confidence: about.trusted(),
        size_bytes: Some(sizes.largest()),
        kept: Kept::Some(1),
    }
}

pub fn keep_some(about: &About<'_>, owner: &str, most: u64) -> Advice {
    let sizes = about.largest;
    let cure = match about.site.container {
        Some(class) if CLASSES.contains(&class) => {
            format!("let {owner} keep {most} of them (each a {class}), and clear or assign to them")
        }
        Some(class) => format!("{}: up to {most} blocks are live", nodes(class)),
        None => format!(
            "let {owner} cache up to {most} freed blocks, of up to {} each, for the next requests; malloc \
             when none is large enough{}",
            counted(sizes.largest(), "byte"),
            zeroed(about.site)
        ),
    };
    Advice {
        pattern: Pattern::Reuse,
        cure,
        confidence: about.trusted(),
        size_bytes: Some(sizes.largest()),
        kept: Kept::Some(most),
    }
}

/// For blocks allocated inside a library's function, which the program cannot change.
pub fn inside(function: &str) -> Advice {
    Advice {
        pattern: Pattern::InLibrary,
        cure: format!(
            "call {function} less often, or use a variant of it that keeps its memory between calls"
        ),
        confidence: Confidence::Low,
        size_bytes: None,
        kept: Kept::None,
    }
}

pub fn arena(owner: &str) -> Advice {
    Advice {
        pattern: Pattern::Arena,
        cure: format!(
            "give {owner} an arena (one block, from which it allocates and which it frees as a whole), or \
             one array in place of the single blocks"
        ),
        confidence: Confidence::Low,
        size_bytes: None,
        kept: Kept::None,
    }
}

/// For blocks that outlive the function that allocates them: its caller may hold one while it asks for
/// another, so one buffer alone is never enough.
///
/// `owner`: the function within which they are allocated and freed, if there is one.
pub fn reuse(
    about: &About<'_>,
    owner: Option<&str>,
    scope: Scope,
    most: u64,
    foreign: bool,
) -> Advice {
    let sizes = about.largest;
    let enough = sizes.covering(0.99);
    let kept = match most {
        1 => "the freed block".to_owned(),
        most => format!("up to {most} freed blocks"),
    };
    let kept = match (scope, foreign) {
        (_, true) => format!("{kept}, under a lock because other threads free them,"),
        (Scope::Thread, _) => format!("{kept} in each thread"),
        _ => kept,
    };
    let list = format!(
        "cache {kept} for the next requests, and malloc when none is large enough{}: {} cover 99 % of \
         them, {} all",
        zeroed(about.site),
        counted(enough, "byte"),
        grouped(sizes.largest())
    );
    let cure = match about.site.container {
        Some(class) if CLASSES.contains(&class) => moved(class),
        Some(class) => format!("{}: up to {} blocks are live", nodes(class), grouped(most)),
        None => match owner {
            None => list,
            Some(owner) => {
                format!("let {owner} keep it for its next call, if it can be reset; else {list}")
            }
        },
    };
    Advice {
        pattern: Pattern::Reuse,
        cure,
        confidence: about.trusted(),
        size_bytes: Some(enough),
        kept: Kept::Some(most),
    }
}

/// For a class that keeps its memory, and that the function returns or passes on.
fn moved(class: &str) -> String {
    format!("move the {class}, or let the caller pass in one that it keeps and clears")
}

/// For a class that frees each node when it is cleared.
fn nodes(class: &str) -> String {
    match class {
        "std::deque" => "a vector that is kept and cleared in place of the std::deque".to_owned(),
        "Rc" | "Arc" => format!("pass on the existing {class}, or borrow from it"),
        "std::list" => "a vector in place of the std::list, or a pool for its nodes".to_owned(),
        class => format!("a sorted array in place of the {class}, or a pool for its nodes"),
    }
}

/// A reused buffer is not zeroed.
fn zeroed(site: &Site) -> &'static str {
    match site.call_name.contains("calloc") {
        true => " (zero it: calloc did)",
        false => "",
    }
}
