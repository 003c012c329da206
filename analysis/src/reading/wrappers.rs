//! Finds the program's own allocation functions: small functions through which many callers request
//! memory of many sizes. Their callers are charged.
//!
//! A function is a wrapper if it is the innermost that could be charged, or separated from the
//! allocator by small functions with few other callers; if its code is small; if many functions call
//! it; and if the requested sizes depend on the caller. A constructor has many callers, too, but one
//! size, so it stays charged. So does a function that requests memory in several places, unless its
//! name is that of an allocation function. A small function named after the C library's (`ts_calloc`,
//! `xstrdup`) is a wrapper even with one caller.
//! Found wrappers are passed over, and the search begins again: it finds wrappers of wrappers at any depth.
//!
//! Time: rounds × stacks × `LOOK_THROUGH`; memory: 8 bytes × `FRAMES` a stack.

use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

use larder_base::order;
use rustc_hash::{FxHashMap, FxHashSet};

use super::chain::Chain;
use super::naming::function_name;
use super::resolve::{ChainFrame, FunctionKey, Resolver};

/// A call path with its requests.
pub struct Path {
    pub chain: Chain,
    pub calls: u64,
    pub bytes: u64,
}

/// A function with more bytes of code does more than allocate.
const SMALL_CODE: u64 = 512;
/// The same for a function with the name of an allocation function: it may have the slow path inlined.
const SMALL_CODE_NAMED: u64 = 2048;
/// The least number of callers; with the name of an allocation function fewer are enough.
const FEWEST_CALLERS: usize = 6;
const FEWEST_CALLERS_NAMED: usize = 3;
/// Distinct mean sizes over the callers, and their share of the callers: a constructor has one.
const FEWEST_SIZES: usize = 3;
const CALLERS_A_SIZE: usize = 5;
/// Functions between a wrapper and the allocator that need not be wrappers by themselves.
const LOOK_THROUGH: usize = 3;
/// A function that is looked through has up to this many callers.
const NARROW_CALLERS: usize = 2;
/// Functions of a stack that are examined, from the innermost that could be charged.
const FRAMES: usize = 12;
const MOST_ROUNDS: usize = 16;
const NAMES_SHOWN: usize = 6;

/// Parts of names of functions that allocate.
const HINTS: &[&str] = &[
    "alloc", "malloc", "dup", "grow", "reserve", "resize", "expand", "ensure", "new",
];

/// Parts of names of functions that replace the C library's.
const LIBRARY_NAMES: &[&str] = &["malloc", "calloc", "realloc", "strdup", "strndup", "memdup"];

/// Marks the wrappers of these paths in the resolver.
pub fn find(paths: &[Path], resolver: &mut Resolver) {
    let mut functions = Functions::default();
    let stacks: Vec<Stack> = paths
        .iter()
        .filter(|path| path.calls > 0)
        .map(|path| functions.stack(path, resolver))
        .collect();
    let found = rounds(&stacks, &functions);
    let wrappers: Vec<FunctionKey> = functions
        .known
        .into_iter()
        .zip(found)
        .filter_map(|(function, found)| found.then_some(function.key))
        .collect();
    resolver.mark_wrappers(wrappers);
}

/// Whether each function is a wrapper.
fn rounds(stacks: &[Stack], functions: &Functions) -> Vec<bool> {
    let mut found = vec![false; functions.known.len()];
    for _ in 0..MOST_ROUNDS {
        let new = round(stacks, functions, &found);
        if new.is_empty() {
            break;
        }
        new.into_iter()
            .for_each(|number| found[number as usize] = true);
    }
    found
}

/// The evidence about one function.
struct Function {
    key: FunctionKey,
    named: bool,
    /// Whether it is named after a function of the C library.
    like_library: bool,
    /// Bytes of machine code; 0 where the function is inlined, `None` where they are not known.
    code_bytes: Option<u64>,
}

impl Function {
    fn is_small(&self) -> bool {
        let most = if self.named {
            SMALL_CODE_NAMED
        } else {
            SMALL_CODE
        };
        self.code_bytes.is_some_and(|bytes| bytes <= most)
    }

    fn fewest_callers(&self) -> usize {
        if self.named {
            FEWEST_CALLERS_NAMED
        } else {
            FEWEST_CALLERS
        }
    }
}

/// A function by its number, and where in it the next one was called.
#[derive(Clone, Copy)]
struct Place {
    function: u32,
    /// The low half identifies the place in the function.
    address: u32,
}

/// A path whose functions that could be charged are these of `Functions::places`.
struct Stack {
    own: Range<usize>,
    calls: u64,
    bytes: u64,
}

#[derive(Default)]
struct Functions {
    known: Vec<Function>,
    by_key: FxHashMap<FunctionKey, u32>,
    by_frame: FxHashMap<*const ChainFrame, u32>,
    /// Of all stacks, each innermost first.
    places: Vec<Place>,
}

impl Functions {
    fn stack(&mut self, path: &Path, resolver: &mut Resolver) -> Stack {
        let frames = path.chain.iter().flat_map(|location| location.iter());
        let from = self.places.len();
        for frame in frames.filter(|frame| !frame.is_passed_over()).take(FRAMES) {
            let function = self.number(frame, resolver);
            self.places.push(Place {
                function,
                address: frame.address as u32,
            });
        }
        Stack {
            own: from..self.places.len(),
            calls: path.calls,
            bytes: path.bytes,
        }
    }

    fn number(&mut self, frame: &ChainFrame, resolver: &mut Resolver) -> u32 {
        let at: *const ChainFrame = frame;
        if let Some(number) = self.by_frame.get(&at) {
            return *number;
        }
        let (key, code_bytes) = resolver.function(frame);
        let next = self.known.len() as u32;
        let number = *self.by_key.entry(key.clone()).or_insert(next);
        if number == next {
            let name = frame
                .source
                .function
                .as_ref()
                .map(|f| f.name.to_lowercase());
            let name = name.unwrap_or_default();
            self.known.push(Function {
                named: HINTS.iter().any(|hint| name.contains(hint)),
                like_library: LIBRARY_NAMES.iter().any(|part| name.contains(part)),
                code_bytes,
                key,
            });
        }
        self.by_frame.insert(at, number);
        number
    }

    /// The innermost functions of a stack once the found ones are passed over.
    fn beyond(&self, stack: &Stack, found: &[bool]) -> &[Place] {
        let own = &self.places[stack.own.clone()];
        let passed = |place: &Place| found[place.function as usize];
        let first = own.iter().position(|place| !passed(place));
        let rest = &own[first.unwrap_or(own.len())..];
        &rest[..rest.len().min(LOOK_THROUGH + 2)]
    }
}

/// The callers of a function that could be charged, with their requests.
#[derive(Default)]
struct Served {
    /// Calls and bytes by caller; a caller that is not known is one.
    callers: FxHashMap<Option<u32>, (u64, u64)>,
    /// The same by the place in the caller.
    call_places: FxHashMap<(u32, u32), (u64, u64)>,
    /// The places in it that request memory.
    places: FxHashSet<u32>,
    /// Functions between it and the allocator.
    inner: FxHashSet<u32>,
}

impl Served {
    /// Whether it is a wrapper: small, with enough callers, whose requests differ.
    fn makes_wrapper(&self, function: &Function) -> bool {
        if function.is_small() && function.like_library && self.callers.keys().any(Option::is_some)
        {
            return true;
        }
        // With the name of an allocation function, several lines of one caller are enough.
        let served = match function.named && self.call_places.len() > self.callers.len() {
            true => depends(self.call_places.values(), function),
            false => depends(self.callers.values(), function),
        };
        function.is_small() && (function.named || self.places.len() == 1) && served
    }
}

/// Whether there are enough callers or places, and their mean sizes differ.
fn depends<'a>(served: impl ExactSizeIterator<Item = &'a (u64, u64)>, function: &Function) -> bool {
    let count = served.len();
    let sizes: BTreeSet<u64> = served.map(|(calls, bytes)| bytes / calls.max(&1)).collect();
    count >= function.fewest_callers() && sizes.len() >= FEWEST_SIZES.max(count / CALLERS_A_SIZE)
}

/// The wrappers among the functions that are innermost once those already found are passed over.
fn round(stacks: &[Stack], functions: &Functions, found: &[bool]) -> FxHashSet<u32> {
    let mut served: FxHashMap<u32, Served> = FxHashMap::default();
    for stack in stacks {
        let own = functions.beyond(stack, found);
        if !own.is_empty() {
            add(&mut served, own, 0, stack);
        }
    }
    let qualifies =
        |number: u32, served: &Served| served.makes_wrapper(&functions.known[number as usize]);
    let direct: FxHashSet<u32> = served
        .iter()
        .filter(|(number, served)| qualifies(**number, served))
        .map(|(number, _)| *number)
        .collect();
    if !direct.is_empty() {
        return direct;
    }
    let narrow = |number: u32| {
        let few = served.get(&number);
        functions.known[number as usize].is_small()
            && few.is_none_or(|few| few.callers.len() <= NARROW_CALLERS)
    };
    let mut behind: FxHashMap<u32, Served> = FxHashMap::default();
    for stack in stacks {
        let own = functions.beyond(stack, found);
        for depth in 1..=LOOK_THROUGH.min(own.len().saturating_sub(1)) {
            if !narrow(own[depth - 1].function) {
                break;
            }
            add(&mut behind, own, depth, stack);
        }
    }
    let wrappers = behind
        .into_iter()
        .filter(|(number, served)| qualifies(*number, served));
    wrappers
        .flat_map(|(number, served)| served.inner.into_iter().chain([number]))
        .collect()
}

/// Adds the caller of the function at this depth, and the place in it that requests memory.
fn add(served: &mut FxHashMap<u32, Served>, own: &[Place], depth: usize, stack: &Stack) {
    let Place { function, address } = own[depth];
    let caller = own.get(depth + 1).map(|place| place.function);
    // A recursive call adds no caller.
    if caller == Some(function) {
        return;
    }
    let served = served.entry(function).or_default();
    served.places.insert(address);
    let inner = own[..depth].iter().map(|place| place.function);
    served.inner.extend(inner);
    let place = own
        .get(depth + 1)
        .map(|place| (place.function, place.address));
    let by_place = place.map(|place| served.call_places.entry(place).or_default());
    let by_caller = served.callers.entry(caller).or_default();
    for (calls, bytes) in by_place.into_iter().chain([by_caller]) {
        *calls = calls.saturating_add(stack.calls);
        *bytes = bytes.saturating_add(stack.bytes);
    }
}

/// The wrappers on recorded stacks, with their numbers of calls.
#[derive(Debug, Default)]
pub struct Passed(FxHashMap<Rc<str>, u64>);

impl Passed {
    pub fn add(&mut self, paths: &[Path]) {
        let mut names: FxHashMap<*const ChainFrame, Rc<str>> = FxHashMap::default();
        let mut seen: Vec<Rc<str>> = Vec::new();
        for path in paths.iter().filter(|path| path.calls > 0) {
            seen.clear();
            let frames = path.chain.iter().flat_map(|location| location.iter());
            let passed = frames.take_while(|frame| frame.is_passed_over());
            for frame in passed.filter(|frame| frame.wrapper.get() && !frame.plumbing) {
                let name = names.entry(frame);
                let name = name.or_insert_with(|| function_name(frame).into());
                if !seen.contains(name) {
                    *self.0.entry(name.clone()).or_default() += path.calls;
                    seen.push(name.clone());
                }
            }
        }
    }

    /// Their names, by descending calls.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<(&Rc<str>, &u64)> = self.0.iter().collect();
        order::sort_by(&mut names, |a, b| b.1.cmp(a.1).then_with(|| a.0.cmp(b.0)));
        names.into_iter().map(|(name, _)| &**name).collect()
    }

    /// One line of text, if there is any.
    pub fn describe(&self) -> Option<String> {
        let names = self.names();
        let shown = names.iter().take(NAMES_SHOWN).copied().collect::<Vec<_>>();
        let more = match names.len().saturating_sub(NAMES_SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        (!names.is_empty()).then(|| {
            format!(
                "callers are charged for {}{more} (--no-wrappers charges these)",
                shown.join(", ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Functions by the bytes of their code, and whether they have the name of an allocation function; stacks
    /// as calls to the allocator from the place `function.address`, innermost first, of this size.
    #[derive(Default)]
    struct Program {
        functions: Functions,
        stacks: Vec<Stack>,
    }

    impl Program {
        fn function(&mut self, code_bytes: u64, named: bool) -> u32 {
            self.functions.known.push(Function {
                key: FunctionKey::default(),
                named,
                like_library: false,
                code_bytes: Some(code_bytes),
            });
            self.functions.known.len() as u32 - 1
        }

        fn call(&mut self, through: &[(u32, u32)], size: u64) {
            let place = |(function, address): &(u32, u32)| Place {
                function: *function,
                address: *address,
            };
            let from = self.functions.places.len();
            self.functions.places.extend(through.iter().map(place));
            self.stacks.push(Stack {
                own: from..self.functions.places.len(),
                calls: 10,
                bytes: 10 * size,
            });
        }

        /// So many new callers of these, each with a size of its own or all with one.
        fn callers(&mut self, through: &[u32], count: u64, sizes: bool) {
            for number in 0..count {
                let caller = self.function(4096, false);
                let own = through.iter().chain([&caller]);
                let own: Vec<(u32, u32)> = own.map(|function| (*function, 0)).collect();
                self.call(&own, if sizes { 16 + 8 * number } else { 40 });
            }
        }

        fn found(&self) -> Vec<u32> {
            let found = rounds(&self.stacks, &self.functions).into_iter();
            let numbers = found.zip(0..).filter(|(found, _)| *found);
            numbers.map(|(_, number)| number).collect()
        }
    }

    /// One function of this code, with so many callers of several sizes or of one.
    fn is_found(code_bytes: u64, named: bool, callers: u64, sizes: bool) -> bool {
        let mut program = Program::default();
        let function = program.function(code_bytes, named);
        program.callers(&[function], callers, sizes);
        program.found() == [function]
    }

    #[test]
    fn many_callers_of_many_sizes_in_little_code_make_a_wrapper() {
        assert!(is_found(100, false, 6, true));
        assert!(!is_found(100, false, 5, true), "few callers");
        assert!(!is_found(100, false, 8, false), "a constructor");
        assert!(!is_found(1000, false, 8, true), "large code");
        assert!(is_found(1000, true, 3, true), "a name that says so");
        assert!(!is_found(1000, true, 2, true));
        assert!(!is_found(4096, true, 8, true));
        assert!(
            !is_found(100, true, 8, false),
            "a constructor by its name, too"
        );
    }

    #[test]
    fn a_function_that_allocates_in_two_places_is_no_wrapper_without_such_a_name() {
        for named in [false, true] {
            let mut program = Program::default();
            let function = program.function(100, named);
            program.callers(&[function], 6, true);
            let caller = program.function(4096, false);
            program.call(&[(function, 8), (caller, 0)], 500);
            assert_eq!(program.found() == [function], named);
        }
    }

    #[test]
    fn wrappers_of_wrappers_are_found_to_any_depth() {
        let mut program = Program::default();
        let nested: Vec<u32> = (0..5).map(|_| program.function(100, false)).collect();
        for depth in 1..=nested.len() {
            program.callers(&nested[..depth], 6, true);
        }
        assert_eq!(program.found(), nested);
    }

    #[test]
    fn a_small_function_that_serves_a_wrapper_alone_is_one_too() {
        let with_others = |others: u64| {
            let mut program = Program::default();
            let (inner, outer) = (program.function(100, false), program.function(100, false));
            program.callers(&[inner, outer], 6, true);
            program.callers(&[inner], others, true);
            program.found()
        };
        assert_eq!(with_others(0), [0, 1]);
        assert_eq!(with_others(1), [0, 1]);
        assert_eq!(with_others(2), [0; 0], "it serves others");
    }

    #[test]
    fn little_code_with_the_librarys_name_is_a_wrapper_of_its_one_caller() {
        let mut program = Program::default();
        let named = program.function(0, true);
        program.functions.known[named as usize].like_library = true;
        // There is no caller to charge in its place.
        program.call(&[(named, 0)], 10);
        assert!(program.found().is_empty());
        program.callers(&[named], 1, false);
        assert_eq!(program.found(), [named]);
    }

    #[test]
    fn several_lines_of_one_function_are_enough_for_an_allocation_functions_name() {
        for (named, sizes, wrapper) in [(true, 3, true), (true, 1, false), (false, 3, false)] {
            let mut program = Program::default();
            let (function, caller) = (program.function(100, named), program.function(4096, false));
            for line in 0..4 {
                let size = 100 + u64::from(line % sizes);
                program.call(&[(function, 0), (caller, line)], size);
            }
            let found = program.found();
            assert_eq!(found == [function], wrapper, "{named} {sizes}: {found:?}");
        }
    }

    #[test]
    fn recursion_is_no_caller() {
        let mut program = Program::default();
        let function = program.function(100, false);
        program.callers(&[function], 5, true);
        program.call(&[(function, 0), (function, 0)], 700);
        assert_eq!(program.found(), [0; 0]);
    }
}
