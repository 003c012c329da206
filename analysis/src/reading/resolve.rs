//! Turns the trace's addresses into frames with names, lines and roles.
//!
//! One thread. Every distinct address is resolved once and cached; a module is loaded at its first
//! address. The cache lasts for all process images of a trace.

use std::cell::{Cell, OnceCell};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::time::SystemTime;

use larder_base::printable;
use larder_trace::symbols::{Function, PYTHON};
use larder_trace::{Frame, FrameId, Module, StackId, StackTable, Trace};
use rustc_hash::FxHashMap;

use super::attribute::writes_text;
use super::chain::{Chain, Location, Stacks};
use super::excerpt::Texts;
use super::lookup::Lookup;
use super::pattern;
use super::plumbing::{ModuleRole, is_family, is_interpreter, is_known_wrapper, is_plumbing};
use crate::symbols::loops::{Around, FunctionCode, MOST_CODE_BYTES, direct_call};
use crate::symbols::source::{FoundSource, Sources};
use crate::symbols::types::ModuleTypes;
use crate::symbols::{DebugRoots, FunctionName, ModuleSymbols, SourceFrame, SymbolProblem};

/// A file whose code ran.
#[derive(Debug)]
pub struct ModuleLabel {
    /// Escaped for printing.
    pub path: String,
    /// The last part of the path.
    pub name: String,
    pub build_id: Vec<u8>,
    pub role: ModuleRole,
    pub language: Language,
}

impl ModuleLabel {
    fn has_file(&self) -> bool {
        !self.name.starts_with("linux-vdso") && self.language != Language::Python
    }
}

/// What a module's code is to Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    Native,
    /// The interpreter, in a trace that has lines of Python.
    Interpreter,
    /// Its functions are Python's.
    Python,
}

/// One function of a stack, inlined ones included.
#[derive(Debug)]
pub struct ChainFrame {
    pub source: SourceFrame,
    pub module: Rc<ModuleLabel>,
    /// The address in the module's file; in the process if no module is known.
    pub address: u64,
    /// The malloc family itself.
    pub family: bool,
    /// Passed over as long as there is another frame.
    pub plumbing: bool,
    /// An allocation function of the program's own: its callers are charged.
    pub wrapper: Cell<bool>,
    /// See `attribute::writes_text`.
    pub writes_text: bool,
    /// The library's class that it is a part of, for advice; computed on first use.
    pub container: OnceCell<Option<&'static str>>,
}

impl ChainFrame {
    /// Whether its callers are charged for what it allocates.
    pub fn is_passed_over(&self) -> bool {
        self.plumbing || self.wrapper.get()
    }
}

/// A function, wherever its code was put.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FunctionKey {
    /// The label's address: one a module.
    module: usize,
    symbol: Option<Rc<str>>,
    /// Its first address and its end, for a function without a name.
    pub(super) code: (u64, u64),
}

impl FunctionKey {
    pub fn has_name(&self) -> bool {
        self.symbol.is_some()
    }

    /// Where it begins; 0 of one with a name.
    pub fn start(&self) -> u64 {
        self.code.0
    }

    fn is_of(&self, frame: &ChainFrame) -> bool {
        let function = frame.source.function.as_ref();
        self.module == Rc::as_ptr(&frame.module) as usize
            && match (&self.symbol, function) {
                (Some(symbol), Some(function)) => *symbol == function.symbol,
                (None, None) => (self.code.0..self.code.1).contains(&frame.address),
                _ => false,
            }
    }
}

/// A module and why its functions lack names or lines.
#[derive(Debug)]
pub struct ModuleProblem {
    pub path: String,
    pub problem: SymbolProblem,
}

struct LoadedModule {
    label: Rc<ModuleLabel>,
    path: Vec<u8>,
    symbols: Option<ModuleSymbols>,
}

/// A pattern of functions that are plumbing, and whether it matched.
struct Skip {
    pattern: String,
    matched: Cell<bool>,
}

/// The functions whose callers are charged, beyond plumbing.
#[derive(Clone, Debug, Default)]
pub struct Charging {
    /// Patterns of functions that are plumbing too.
    pub skips: Vec<String>,
    pub wrappers: Wrappers,
    pub lookup: Lookup,
}

/// How the program's own allocation functions are charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wrappers {
    /// Found, and their callers charged.
    #[default]
    PassedOver,
    /// Charged like any function.
    Charged,
}

pub struct Resolver {
    roots: DebugRoots,
    skips: Vec<Skip>,
    full_names: bool,
    sources: Sources,
    /// Of the sources that are shown; `None`: none is.
    texts: Option<Texts>,
    /// Whether the program's own allocation functions are passed over.
    passes_wrappers: bool,
    wrappers: Vec<FunctionKey>,
    modules: Vec<LoadedModule>,
    /// By path, build id and, for traces with names of their own, the image.
    by_identity: HashMap<(Vec<u8>, Vec<u8>, u64), usize>,
    image: u64,
    unknown: Rc<ModuleLabel>,
    frames: FxHashMap<(usize, u64), Location>,
    /// The same for `frames_beside`, which takes no names from the trace.
    beside: FxHashMap<(usize, u64), Location>,
    /// The stacks of the image, with the trace's numbers.
    stacks: Rc<Stacks>,
    /// Room for the part of a stack that is not resolved yet.
    unresolved: Vec<(StackId, FrameId)>,
    /// The trace's own names.
    names: HashMap<Vec<u8>, FunctionName>,
    files: HashMap<Vec<u8>, Rc<str>>,
    /// By module and start.
    functions: FxHashMap<(usize, u64), FunctionCode>,
    loops: FxHashMap<(usize, u64, bool), Around>,
}

/// The number of the place for addresses in no module.
const NO_MODULE: usize = usize::MAX;
/// In place of an image: the interpreter's module in traces that have lines of Python.
const OF_PYTHON: u64 = u64::MAX;

impl Resolver {
    /// Charges callers by these options.
    pub fn new(charging: Charging) -> Self {
        let Charging {
            skips,
            wrappers,
            lookup,
        } = charging;
        Self {
            roots: DebugRoots {
                debuginfod: lookup.debuginfod.clone(),
                ..DebugRoots::from_environment()
            },
            passes_wrappers: wrappers == Wrappers::PassedOver,
            wrappers: Vec::new(),
            full_names: lookup.full_names,
            texts: lookup.shows_source.then(Texts::default),
            sources: Sources::new(lookup.sources, lookup.debuginfod),
            skips: skips
                .into_iter()
                .map(|pattern| Skip {
                    pattern,
                    matched: Cell::new(false),
                })
                .collect(),
            modules: Vec::new(),
            by_identity: HashMap::new(),
            image: 0,
            unknown: Rc::new(ModuleLabel {
                path: "[unknown]".to_owned(),
                name: "[unknown]".to_owned(),
                build_id: Vec::new(),
                role: ModuleRole::Program,
                language: Language::Native,
            }),
            frames: FxHashMap::default(),
            beside: FxHashMap::default(),
            stacks: Stacks::new(),
            unresolved: Vec::new(),
            names: HashMap::new(),
            files: HashMap::new(),
            functions: FxHashMap::default(),
            loops: FxHashMap::default(),
        }
    }

    /// Begins another trace.
    pub fn begin_image(&mut self) {
        self.image += 1;
        self.stacks = Stacks::new();
    }

    /// Frees what few addresses need once all stacks are named: the debug information, and the code that was read for
    /// loops. It is read again when needed.
    pub fn rest(&mut self) {
        self.functions = FxHashMap::default();
        let loaded = self.modules.iter_mut();
        let loaded = loaded.filter_map(|module| module.symbols.as_mut());
        loaded.for_each(ModuleSymbols::rest);
    }

    /// A stack of the image. Takes time and memory only for the part that no earlier stack had.
    pub fn chain(&mut self, trace: &Trace, stacks: &StackTable, stack: StackId) -> Chain {
        let (mut at, mut new) = (stack, std::mem::take(&mut self.unresolved));
        while !self.stacks.has_stack(at.0)
            && let Some(frame) = stacks.frame_ids(at).next()
        {
            new.push((at, frame));
            at = stacks.parent(at);
        }
        while let Some((at, frame)) = new.pop() {
            self.call(trace, stacks, at, frame);
        }
        self.unresolved = new;
        self.stacks.chain(stack.0)
    }

    /// Resolves all stacks of the image, for an observer that will ask for nearly all of them.
    pub fn all_chains(&mut self, trace: &Trace, stacks: &StackTable) {
        // A caller's stack comes before its callees'.
        for stack in stacks.all() {
            if let Some(frame) = stacks.frame_ids(stack).next() {
                self.call(trace, stacks, stack, frame);
            }
        }
    }

    fn call(&mut self, trace: &Trace, stacks: &StackTable, stack: StackId, id: FrameId) {
        if !self.stacks.has_location(id.0) {
            let frame = stacks.frame(id);
            let module = frame.and_then(|frame| trace.module(frame.module?));
            let address = frame.map_or(0, Frame::lookup_address);
            let location = self.frames(trace, module, address);
            self.stacks.locate(id.0, location);
        }
        let callers = stacks.parent(stack);
        self.stacks.call(stack.0, id.0, callers.0);
    }

    /// The functions at an address, innermost first; at least one. The trace's own names take
    /// precedence over those of any file.
    ///
    /// `address` lies inside the instruction that called.
    pub fn frames(
        &mut self,
        trace: &Trace,
        module: Option<&Module>,
        address: u64,
    ) -> Rc<[ChainFrame]> {
        let (index, in_file) = match module {
            Some(module) => (
                self.module_index(trace, module),
                address.wrapping_sub(module.bias),
            ),
            None => (NO_MODULE, address),
        };
        if let Some(frames) = self.frames.get(&(index, in_file)) {
            return frames.clone();
        }
        let named = self.named(trace, module, index, in_file);
        let frames: Rc<[ChainFrame]> = named.unwrap_or_else(|| self.resolve(index, in_file)).into();
        self.frames.insert((index, in_file), frames.clone());
        frames
    }

    /// The same for an address in a file, or in none, without a trace; the bias is ignored.
    pub fn frames_in_file(&mut self, module: Option<&Module>, address: u64) -> Rc<[ChainFrame]> {
        let native = Language::Native;
        let index = module.map_or(NO_MODULE, |module| self.index_of(module, 0, |_| native));
        if let Some(frames) = self.frames.get(&(index, address)) {
            return frames.clone();
        }
        let frames: Rc<[ChainFrame]> = self.resolve(index, address).into();
        self.frames.insert((index, address), frames.clone());
        frames
    }

    /// The trace's own names for an address.
    fn named(
        &mut self,
        trace: &Trace,
        module: Option<&Module>,
        index: usize,
        in_file: u64,
    ) -> Option<Vec<ChainFrame>> {
        let label = self.modules.get(index)?.label.clone();
        let functions = trace.symbols().functions(module?.id, in_file);
        let outermost = functions.len().checked_sub(1)?;
        let frames = functions.enumerate().map(|(depth, function)| {
            let source = match label.language {
                Language::Python => python_frame(&function),
                _ => self.source_frame(&function, depth < outermost),
            };
            self.judge(source, &label, in_file)
        });
        Some(frames.collect())
    }

    /// Names are shared: a short record can point to a long one.
    fn source_frame(&mut self, function: &Function<'_>, inlined: bool) -> SourceFrame {
        let text = String::from_utf8_lossy;
        let name = some(function.name).map(|name| {
            let new = || FunctionName::new(&text(name), None);
            shared(&mut self.names, name, new)
        });
        let file =
            some(function.file).map(|file| shared(&mut self.files, file, || (*text(file)).into()));
        SourceFrame {
            function: name,
            file,
            line: Some(function.line).filter(|line| *line > 0),
            inlined,
        }
    }

    fn module_index(&mut self, trace: &Trace, module: &Module) -> usize {
        let names = trace.symbols();
        let image = match names.is_empty() {
            true => 0,
            false if names.name_some_of(module.id) => self.image,
            false if is_interpreter(&module.path) => OF_PYTHON,
            false => 0,
        };
        self.index_of(module, image, |path| {
            let has_python = || trace.modules().iter().any(|other| other.path == PYTHON);
            match image {
                _ if path == PYTHON => Language::Python,
                OF_PYTHON if has_python() => Language::Interpreter,
                _ => Language::Native,
            }
        })
    }

    /// `image` is 0 where names come from the file alone.
    fn index_of(
        &mut self,
        module: &Module,
        image: u64,
        language: impl FnOnce(&[u8]) -> Language,
    ) -> usize {
        let identity = (module.path.clone(), module.build_id.clone(), image);
        if let Some(index) = self.by_identity.get(&identity) {
            return *index;
        }
        let path = Path::new(OsStr::from_bytes(&module.path));
        let name = printable::name(path.file_name().unwrap_or_default());
        let label = ModuleLabel {
            path: printable::name(path),
            role: ModuleRole::of(&name),
            language: language(&module.path),
            name,
            build_id: identity.1.clone(),
        };
        self.modules.push(LoadedModule {
            label: Rc::new(label),
            path: identity.0.clone(),
            symbols: None,
        });
        let index = self.modules.len() - 1;
        self.by_identity.insert(identity, index);
        index
    }

    fn resolve(&mut self, index: usize, address: u64) -> Vec<ChainFrame> {
        let Some(symbols) = symbols(&mut self.modules, &self.roots, index) else {
            return vec![self.bare_frame(&self.unknown, address)];
        };
        let found = symbols.frames(address);
        let label = self.modules[index].label.clone();
        if found.is_empty() {
            return vec![self.bare_frame(&label, address)];
        }
        found
            .into_iter()
            .map(|source| self.judge(source, &label, address))
            .collect()
    }

    /// The innermost loop of its function that a frame's call lies in. `allocates`: the call is of
    /// the malloc family.
    pub fn loop_around(&mut self, frame: &ChainFrame, allocates: bool) -> Around {
        let mut modules = self.modules.iter();
        let Some(index) = modules.position(|module| Rc::ptr_eq(&module.label, &frame.module))
        else {
            return Around::Unknown;
        };
        let key = (index, frame.address, allocates);
        if let Some(known) = self.loops.get(&key) {
            return *known;
        }
        let found = self.find_loop(index, frame.address, allocates);
        self.loops.insert(key, found);
        found
    }

    /// The functions at another address of a frame's module.
    pub fn frames_beside(&mut self, frame: &ChainFrame, address: u64) -> Rc<[ChainFrame]> {
        let mut modules = self.modules.iter();
        let index = modules.position(|module| Rc::ptr_eq(&module.label, &frame.module));
        let index = index.unwrap_or(NO_MODULE);
        if let Some(frames) = self.beside.get(&(index, address)) {
            return frames.clone();
        }
        let frames: Location = self.resolve(index, address).into();
        self.beside.insert((index, address), frames.clone());
        frames
    }

    /// The source file of a frame.
    pub fn source(&self, frame: &ChainFrame) -> Option<FoundSource> {
        let file = frame.source.file.as_ref()?;
        self.sources.find(file, &frame.module.build_id)
    }

    /// What was read of sources, if they are shown.
    pub fn shown_texts(&self) -> Option<&Texts> {
        self.texts.as_ref()
    }

    /// When a frame's module was written.
    pub fn built(&self, frame: &ChainFrame) -> Option<SystemTime> {
        let mut modules = self.modules.iter();
        let module = modules.find(|module| Rc::ptr_eq(&module.label, &frame.module))?;
        let path = Path::new(OsStr::from_bytes(&module.path));
        path.metadata().ok()?.modified().ok()
    }

    /// The types of a frame's module, if its names were looked up.
    pub fn types(&self, frame: &ChainFrame) -> Option<ModuleTypes<'_>> {
        let mut modules = self.modules.iter();
        let module = modules.find(|module| Rc::ptr_eq(&module.label, &frame.module))?;
        module.symbols.as_ref()?.types()
    }

    /// The address that a frame's call leads to in its own module, if it is a direct call.
    pub fn callee(&self, frame: &ChainFrame) -> Option<u64> {
        let mut modules = self.modules.iter();
        let module = modules.find(|module| Rc::ptr_eq(&module.label, &frame.module))?;
        let (start, code) = module.symbols.as_ref()?.code(frame.address)?;
        let returns_to = frame.address.wrapping_add(1);
        let end = usize::try_from(returns_to.checked_sub(start)?).ok()?;
        direct_call(code.get(..end)?).map(|by| returns_to.wrapping_add_signed(by))
    }

    /// What the file has from an address on, to the end of its section.
    pub fn data(&mut self, trace: &Trace, module: &Module, in_file: u64) -> Option<&[u8]> {
        let index = self.module_index(trace, module);
        symbols(&mut self.modules, &self.roots, index)?.data(in_file)
    }

    fn find_loop(&mut self, index: usize, address: u64, allocates: bool) -> Around {
        let symbols = symbols(&mut self.modules, &self.roots, index);
        let Some((start, code)) = symbols.and_then(|symbols| symbols.code(address)) else {
            return Around::Unknown;
        };
        if code.len() as u64 > MOST_CODE_BYTES {
            return Around::Unknown;
        }
        let known = self.functions.entry((index, start));
        let function = known.or_insert_with(|| FunctionCode::new(code, start));
        function.around(address.wrapping_add(1), allocates)
    }

    fn bare_frame(&self, module: &Rc<ModuleLabel>, address: u64) -> ChainFrame {
        let source = SourceFrame {
            function: None,
            file: None,
            line: None,
            inlined: false,
        };
        self.judge(source, module, address)
    }

    /// A function without a name goes by its module and address, as reports show it.
    fn is_skipped(&self, source: &SourceFrame, module: &ModuleLabel, address: u64) -> bool {
        if self.skips.is_empty() {
            return false;
        }
        let bare = format!("{}+{address:#x}", module.name);
        let mut skipped = false;
        for skip in &self.skips {
            let is_meant = |name: &str| pattern::matches(&skip.pattern, name);
            let function = source.function.as_ref();
            if function.map_or_else(|| is_meant(&bare), |f| f.is_named(is_meant)) {
                skip.matched.set(true);
                skipped = true;
            }
        }
        skipped
    }

    fn judge(&self, mut source: SourceFrame, module: &Rc<ModuleLabel>, address: u64) -> ChainFrame {
        if let (true, Some(function)) = (self.full_names, &mut source.function) {
            function.name = function.full.clone();
        }
        let skipped = self.is_skipped(&source, module, address);
        let known = self.passes_wrappers && is_known_wrapper(&source);
        let frame = ChainFrame {
            family: is_family(module.role, &source),
            writes_text: writes_text(&source),
            plumbing: skipped
                || module.language == Language::Interpreter
                || is_plumbing(module.role, &source),
            source,
            module: module.clone(),
            address,
            wrapper: Cell::new(known),
            container: OnceCell::new(),
        };
        if !frame.plumbing && self.wrappers.iter().any(|key| key.is_of(&frame)) {
            frame.wrapper.set(true);
        }
        frame
    }

    pub fn passes_wrappers(&self) -> bool {
        self.passes_wrappers
    }

    /// A frame's function, and its bytes of code: 0 where it is inlined, `None` where they are not
    /// known.
    pub fn function(&mut self, frame: &ChainFrame) -> (FunctionKey, Option<u64>) {
        let key = named_key(frame);
        if let (Some(key), true) = (&key, frame.source.inlined) {
            return (key.clone(), Some(0));
        }
        let mut modules = self.modules.iter();
        let index = modules.position(|module| Rc::ptr_eq(&module.label, &frame.module));
        let symbols = index.and_then(|index| symbols(&mut self.modules, &self.roots, index));
        let extent = symbols.and_then(|symbols| symbols.extent(frame.address));
        let unnamed = || FunctionKey {
            module: Rc::as_ptr(&frame.module) as usize,
            symbol: None,
            code: extent.map_or(
                (frame.address, frame.address.saturating_add(1)),
                |(start, bytes)| (start, start.saturating_add(bytes)),
            ),
        };
        (key.unwrap_or_else(unnamed), extent.map(|(_, bytes)| bytes))
    }

    /// The marked functions, each with its module.
    pub fn found_wrappers(&self) -> impl Iterator<Item = (Rc<ModuleLabel>, FunctionKey)> {
        self.wrappers.iter().filter_map(|key| {
            let labels = self.modules.iter().map(|module| &module.label);
            let label = labels
                .chain([&self.unknown])
                .find(|label| Rc::as_ptr(label) as usize == key.module);
            Some((label?.clone(), key.clone()))
        })
    }

    /// A function of another resolver, in those of this one's modules that are the same.
    pub fn in_modules(
        &self,
        function: &FunctionKey,
        is_its: impl Fn(&ModuleLabel) -> bool,
    ) -> Vec<FunctionKey> {
        let labels = self.modules.iter().map(|module| &module.label);
        let own = labels
            .filter(|label| is_its(label))
            .map(|label| FunctionKey {
                module: Rc::as_ptr(label) as usize,
                ..function.clone()
            });
        own.collect()
    }

    /// Charges the callers of these from now on; returns whether any was not marked before.
    pub fn mark_wrappers(&mut self, wrappers: Vec<FunctionKey>) -> bool {
        let known = self.wrappers.len();
        let new = wrappers
            .into_iter()
            .filter(|key| !self.wrappers.contains(key));
        let new: Vec<FunctionKey> = new.collect();
        self.wrappers.extend(new);
        let new = &self.wrappers[known..];
        let frames = self.frames.values().flat_map(|location| location.iter());
        for frame in frames.filter(|frame| !frame.plumbing) {
            if new.iter().any(|key| key.is_of(frame)) {
                frame.wrapper.set(true);
            }
        }
        !new.is_empty()
    }

    /// A warning for each `--skip` that matched no function on any stack.
    pub fn unmatched_skips(&self) -> impl Iterator<Item = String> {
        let unmatched = self.skips.iter().filter(|skip| !skip.matched.get());
        unmatched.map(|skip| super::unmatched("--skip", &skip.pattern))
    }

    /// Why functions lack names or lines, for each module whose names were looked up.
    pub fn problems(&self) -> Vec<ModuleProblem> {
        self.modules
            .iter()
            .filter(|module| module.label.has_file() && module.label.role != ModuleRole::Larder)
            // Its lines are Python's.
            .filter(|module| module.label.language != Language::Interpreter)
            .filter_map(|module| {
                let problem = module.symbols.as_ref()?.problem.clone()?;
                Some(ModuleProblem {
                    path: module.label.path.clone(),
                    problem,
                })
            })
            .collect()
    }
}

fn named_key(frame: &ChainFrame) -> Option<FunctionKey> {
    Some(FunctionKey {
        module: Rc::as_ptr(&frame.module) as usize,
        symbol: Some(frame.source.function.as_ref()?.symbol.clone()),
        code: (0, 0),
    })
}

/// A module's symbols, loaded on first use.
fn symbols<'m>(
    modules: &'m mut [LoadedModule],
    roots: &DebugRoots,
    index: usize,
) -> Option<&'m ModuleSymbols> {
    let module = modules.get_mut(index)?;
    let (path, label) = (Path::new(OsStr::from_bytes(&module.path)), &module.label);
    if label.language == Language::Python {
        return None;
    }
    // Larder's own functions are not shown, and the kernel's module has no file.
    let is_asked_for = label.role != ModuleRole::Larder && label.has_file();
    let load = || match is_asked_for {
        true => ModuleSymbols::load(path, &label.build_id, roots),
        false => ModuleSymbols::load(path, &label.build_id, &roots.local()),
    };
    Some(module.symbols.get_or_insert_with(load))
}

/// The line of a Python function, whose name is not mangled.
fn python_frame(function: &Function<'_>) -> SourceFrame {
    let text = String::from_utf8_lossy;
    SourceFrame {
        function: some(function.name).map(|name| FunctionName::plain(&text(name))),
        file: some(function.file).map(|file| (*text(file)).into()),
        line: Some(function.line).filter(|line| *line > 0),
        inlined: false,
    }
}

fn some(text: &[u8]) -> Option<&[u8]> {
    (!text.is_empty()).then_some(text)
}

/// The value of a key, made on first use.
fn shared<T: Clone>(known: &mut HashMap<Vec<u8>, T>, key: &[u8], make: impl FnOnce() -> T) -> T {
    if let Some(value) = known.get(key) {
        return value.clone();
    }
    let value = make();
    known.insert(key.to_vec(), value.clone());
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_the_trace_is_kept_once() {
        let mut resolver = Resolver::new(Charging::default());
        let function = Function {
            name: b"_ZN3box4growEv",
            file: b"/src/box.cc",
            line: 3,
        };
        let [a, b] = [true, false].map(|inlined| resolver.source_frame(&function, inlined));
        let names = [&a, &b].map(|frame| frame.function.as_ref().unwrap());
        assert_eq!(&*names[0].name, "box::grow");
        assert!(Rc::ptr_eq(&names[0].symbol, &names[1].symbol));
        assert!(Rc::ptr_eq(&names[0].name, &names[1].name));
        assert!(Rc::ptr_eq(&a.file.unwrap(), &b.file.unwrap()));
        let unknown = resolver.source_frame(&Function::default(), false);
        assert!(unknown.function.is_none() && unknown.file.is_none() && unknown.line.is_none());
    }
}
