//! Python code in a stack: finds CPython in a module, and its frames of the calling thread.
//!
//! Each line of a function gets an address in a range that no code can have, as if it were machine code of a module of
//! its own, which symbol chunks name. The address follows from the names, so that threads and processes agree on it
//! without a table.
//!
//! Thread safety: values here never change.

mod chain;
mod code;
mod layout;

use std::ffi::{CStr, CString, c_char};
use std::ops::Range;

use larder_trace::ModuleId;
use larder_trace::layout::{CHUNK_HEADER_BYTES, ChunkHeader, ChunkKind, Contents};
use larder_trace::symbols::{Function, PYTHON_ADDRESSES, SymbolChunk};

use crate::exports::Exports;
use crate::{file, hash, sys};
use chain::is_plausible;
pub use chain::{Evaluated, PythonFrame, Thread};
use code::Place;
use layout::{Evaluation, KNOWN, Layout, OBJECT_TYPE};

type ThreadState = unsafe extern "C" fn() -> usize;
type VersionText = unsafe extern "C" fn() -> *const c_char;

/// A module that has CPython.
#[derive(Clone)]
pub struct Interpreter {
    /// The code of the function that evaluates Python code, without what the compiler has moved elsewhere.
    pub evaluates: Range<u64>,
    module: Range<u64>,
    /// Returns the calling thread's state, or 0; plain reads.
    thread_state: ThreadState,
    /// Since Python 3.11.
    version: Option<u64>,
    version_text: VersionText,
    code_type: u64,
    text_type: u64,
    /// `PyObject_GetArenaAllocator`, and the one that sets it.
    arenas: Option<[usize; 2]>,
    /// The working directory at the program's start.
    folder: Vec<u8>,
}

impl Interpreter {
    pub fn of(exports: &Exports, module: Range<u64>) -> Option<Interpreter> {
        let find = |name| exports.find(name);
        let evaluates = find(b"_PyEval_EvalFrameDefault")?;
        let thread_state = find(b"PyGILState_GetThisThreadState")?.address as usize;
        let version_text = find(b"Py_GetVersion")?.address as usize;
        let arenas = || {
            let get = find(b"PyObject_GetArenaAllocator")?;
            let set = find(b"PyObject_SetArenaAllocator")?;
            Some([get.address as usize, set.address as usize])
        };
        let mut folder = vec![0; 4096];
        let length = sys::working_directory(&mut folder).unwrap_or(0);
        folder.truncate(length);
        Some(Interpreter {
            evaluates: evaluates.address..evaluates.address + evaluates.bytes,
            module,
            // SAFETY: CPython's functions of these names have these types.
            thread_state: unsafe { std::mem::transmute::<usize, ThreadState>(thread_state) },
            version: find(b"Py_Version").map(|version| version.address),
            // SAFETY: as above.
            version_text: unsafe { std::mem::transmute::<usize, VersionText>(version_text) },
            code_type: find(b"PyCode_Type")?.address,
            text_type: find(b"PyUnicode_Type")?.address,
            arenas: arenas(),
            folder,
        })
    }

    pub fn arena_functions(&self) -> Option<[usize; 2]> {
        self.arenas
    }

    /// Major and minor version.
    fn version(&self) -> Option<[u32; 2]> {
        if let Some(at) = self.version {
            let word = code::read_word(at)? as u32;
            return Some([word >> 24, word >> 16 & 255]);
        }
        // SAFETY: the function formats into memory of its own, always the same text.
        let text = unsafe { CStr::from_ptr((self.version_text)()) };
        let mut parts = text.to_str().ok()?.split('.');
        let mut part = || parts.next()?.parse().ok();
        Some([part()?, part()?])
    }

    fn layout(&self) -> Option<&'static Layout> {
        static LAYOUTS: [Layout; 7] = KNOWN;
        let version = self.version()?;
        LAYOUTS.iter().find(|layout| version == [3, layout.minor])
    }

    fn python(&self, module: u32) -> Option<Python> {
        let python = Python {
            layout: self.layout()?,
            module: ModuleId(module),
            interpreter: self.clone(),
        };
        python.can_be_read().then_some(python)
    }

    /// Whether the calling thread, with these addresses on its stack, evaluates Python code. Of the function that does so
    /// the compiler may have moved most elsewhere: then the thread's frames tell.
    pub fn runs(&self, mut stack: impl Iterator<Item = u64> + Clone) -> bool {
        let evaluates = stack
            .clone()
            .any(|address| self.evaluates.contains(&address));
        evaluates || stack.any(|address| self.module.contains(&address)) && self.python(0).is_some()
    }

    /// How to read frames, if that can be done: the calling thread evaluates Python code. If not, says so in one line
    /// on stderr.
    pub fn begin(&self, module: u32) -> Option<Python> {
        if let Some(python) = self.python(module) {
            return Some(python);
        }
        let [major, minor] = self.version()?;
        let version = CString::new(format!("{major}.{minor}")).unwrap_or_default();
        let layout = self.layout();
        let known = layout.map_or("its frames are not known", |_| "its frames cannot be read");
        let rest = format!("{known}: native ones are recorded");
        file::warn(b"Python ", &version, None, rest.as_bytes());
        None
    }
}

/// A running CPython whose frames can be read.
pub struct Python {
    layout: &'static Layout,
    module: ModuleId,
    interpreter: Interpreter,
}

/// Whether an object is of a type; nothing is trusted.
fn is_of(object: u64, kind: u64) -> bool {
    code::read_word(object + OBJECT_TYPE) == Some(kind)
}

/// A line of a Python function.
pub struct Line {
    place: Place,
    address: u64,
}

impl Line {
    /// Its address in the trace's form: as behind the call that is looked up.
    pub fn packed(&self) -> u64 {
        (self.address + 1) << 1
    }
}

impl Python {
    /// The calling thread, if it runs Python code. `checked`: the state that was found to be its own last.
    #[inline]
    pub fn thread(&self, checked: &mut u64) -> Option<Thread<'_>> {
        // SAFETY: the module is loaded; before it has initialized itself, the function returns 0.
        let state = unsafe { (self.interpreter.thread_state)() } as u64;
        if state != *checked {
            *checked = if self.is_own(state) { state } else { 0 };
        }
        // SAFETY: just checked, or before; a thread's state stays as long as it is returned.
        (*checked != 0).then(|| unsafe { Thread::new(self.layout, *checked) })
    }

    #[cold]
    fn is_own(&self, state: u64) -> bool {
        let thread = |state| code::read_word(state + u64::from(self.layout.thread));
        // SAFETY: reads a register.
        let own = unsafe { libc::pthread_self() } as usize as u64;
        is_plausible(state) && thread(state) == Some(own)
    }

    /// Whether the layout is right for the calling thread's frames: each has a code object with texts as names.
    fn can_be_read(&self) -> bool {
        let is_text = |code: u64, offset: u32| {
            code::read_word(code + u64::from(offset))
                .is_some_and(|text| is_plausible(text) && is_of(text, self.interpreter.text_type))
        };
        let layout = self.layout;
        let texts = [layout.name, layout.shown_name, layout.file];
        let checked = self.thread(&mut 0).and_then(|thread| self.checked(thread));
        checked.is_some_and(|(_, codes)| {
            let mut codes = codes.into_iter();
            codes.all(|code| texts.iter().all(|offset| is_text(code, *offset)))
        })
    }

    /// Where the thread's innermost evaluation is on the native stack, if all its frames can be read.
    #[cold]
    pub fn anchor(&self, thread: Thread<'_>) -> Option<u64> {
        self.checked(thread).map(|(anchor, _)| anchor)
    }

    fn checked(&self, thread: Thread<'_>) -> Option<(u64, Vec<u64>)> {
        let is_code = |code: &u64| is_plausible(*code) && is_of(*code, self.interpreter.code_type);
        thread
            .checked()
            .filter(|(_, codes)| codes.iter().all(is_code))
    }

    /// The frames of a thread that was interrupted.
    pub fn interrupted(&self, thread: Thread<'_>) -> (Vec<Evaluated>, bool) {
        thread.frames(Some(self.interpreter.code_type))
    }

    /// Finds where the frames of each evaluation are on the native stack, if they do not say it themselves.
    /// `native`: addresses in the trace's form and stack pointers, innermost first. `complete`: so are these stacks.
    pub fn place(
        &self,
        native: &[(u64, u64)],
        evaluated: &mut [Evaluated],
        complete: bool,
    ) -> bool {
        if self.layout.evaluation != Evaluation::FrameInOrder {
            return true;
        }
        let interpreter = &self.interpreter;
        let bytes = |at: usize| native.get(at + 1).map(|outer| outer.1 - native[at].1);
        let is_within = |at: &usize, code: &Range<u64>| code.contains(&(native[*at].0 >> 1));
        let evaluates = |at: &usize| is_within(at, &interpreter.evaluates);
        let all = 0..native.len();
        let mut places: Vec<usize> = all.clone().filter(evaluates).collect();
        if complete && places.len() < evaluated.len() {
            // What the compiler has moved elsewhere has native frames of the same size.
            let usual = places.first().map(|at| bytes(*at));
            let is_like =
                |at: &usize| is_within(at, &interpreter.module) && Some(bytes(*at)) == usual;
            places = all.filter(|at| evaluates(at) || is_like(at)).collect();
        }
        for (at, here) in places.iter().zip(evaluated.iter_mut()) {
            here.at = native[*at].1;
        }
        !complete || places.len() == evaluated.len()
    }

    /// The line that a frame is at, which is read with care.
    pub fn line(&self, frame: PythonFrame) -> Option<Line> {
        let place = code::place(self.layout, frame)?;
        let (function, file) = (hash::bytes(&place.function), hash::bytes(&place.file));
        let key = hash::fold(function ^ u64::from(place.line).rotate_left(32), file | 1);
        let address = PYTHON_ADDRESSES.start | (key & (PYTHON_ADDRESSES.start - 2));
        Some(Line { place, address })
    }

    /// Adds the line's names.
    pub fn name(&self, line: &Line, names: &mut SymbolChunk) {
        let path = self.path(&line.place.file);
        let function = Function {
            name: &line.place.function,
            file: &path,
            line: line.place.line,
        };
        names.add(self.module, line.address, &[function]);
    }

    /// The path of a file as the program's start had it; `<frozen …>` and its like are no paths.
    fn path(&self, file: &[u8]) -> Vec<u8> {
        match file.first() {
            None | Some(b'/' | b'<') => file.to_vec(),
            Some(_) => {
                let file = file.strip_prefix(b"./").unwrap_or(file);
                [&self.interpreter.folder, &b"/"[..], file].concat()
            }
        }
    }
}

/// Writes names to the trace.
pub fn write(mut names: SymbolChunk) {
    if names.is_empty() {
        return;
    }
    let mut bytes = vec![0; CHUNK_HEADER_BYTES];
    bytes.extend(names.take());
    let header = ChunkHeader {
        kind: ChunkKind::Symbols,
        compressed: false,
        columns: false,
        stored_bytes: 0,
        raw_bytes: (bytes.len() - CHUNK_HEADER_BYTES) as u32,
        contents: Contents::default(),
    };
    file::append(&mut bytes, header);
}
