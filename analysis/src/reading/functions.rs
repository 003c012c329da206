//! The functions of stacks, numbered, for what counts by function and not by line.
//!
//! Memory: by the distinct functions and code addresses of a trace.

use std::collections::HashMap;
use std::rc::Rc;

use larder_trace::Call;
use rustc_hash::FxHashMap;

use super::attribute::functions;
use super::chain::Chain;
use super::naming::{shown, without_start};
use super::pattern;
use super::plumbing::ModuleRole;
use super::resolve::{ChainFrame, FunctionKey, ModuleLabel, Resolver};
use crate::symbols::FunctionName;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionId(u32);

impl FunctionId {
    /// The recorder's own code.
    pub const RECORDER: FunctionId = FunctionId(0);

    pub fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Debug)]
pub struct CountedFunction {
    /// For printing: escaped; of a function without a name its module and first address.
    pub name: String,
    function: Option<FunctionName>,
    /// `None`: the recorder, or known only by calls that it recorded.
    pub module: Option<Rc<ModuleLabel>>,
    pub file: Option<Rc<str>>,
}

impl CountedFunction {
    fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            function: None,
            module: None,
            file: None,
        }
    }

    /// Whether a pattern with `*` and `?` names it, demangled or not.
    pub fn matches(&self, wanted: &str) -> bool {
        let is_meant = |name: &str| pattern::matches(wanted, name);
        let function = self.function.as_ref();
        is_meant(&self.name) || function.is_some_and(|function| function.is_named(is_meant))
    }
}

/// What a stack is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaf {
    /// Code that ran: the innermost frame.
    Sample,
    /// A function that the innermost frame has called.
    Call(Call),
}

pub struct FunctionTable {
    list: Vec<CountedFunction>,
    by_key: HashMap<FunctionKey, FunctionId>,
    /// By the frame's address, which stays as long as the resolver.
    by_frame: FxHashMap<usize, FunctionId>,
    /// Functions that the recorder knows by name; those of that name in the system's libraries are the same.
    by_call: HashMap<&'static str, FunctionId>,
}

impl Default for FunctionTable {
    fn default() -> Self {
        Self {
            list: vec![CountedFunction::named("[recorder]")],
            by_key: HashMap::new(),
            by_frame: FxHashMap::default(),
            by_call: HashMap::new(),
        }
    }
}

impl FunctionTable {
    pub fn get(&self, id: FunctionId) -> &CountedFunction {
        &self.list[id.index()]
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether it has nothing but the recorder.
    pub fn is_empty(&self) -> bool {
        self.len() == 1
    }

    pub fn iter(&self) -> impl Iterator<Item = (FunctionId, &CountedFunction)> {
        let ids = (0..).map(FunctionId);
        ids.zip(&self.list)
    }

    /// The functions of a stack, innermost first, inlined ones included, up to `main` or the thread's
    /// function. Of the recorder's own code only a sample shows something, as one function.
    pub fn path(&mut self, resolver: &mut Resolver, chain: &Chain, leaf: Leaf) -> Vec<FunctionId> {
        let frames: Vec<&ChainFrame> = functions(chain).collect();
        let mut path = Vec::with_capacity(frames.len() + 1);
        match leaf {
            Leaf::Call(call) => path.push(self.called(call.name())),
            Leaf::Sample if frames.first().is_some_and(|frame| is_recorder(frame)) => {
                path.push(FunctionId::RECORDER);
            }
            Leaf::Sample => {}
        }
        let shown = without_start(&frames).iter();
        for frame in shown.filter(|frame| !is_recorder(frame)) {
            path.push(self.of_frame(resolver, frame));
        }
        path
    }

    fn add(&mut self, function: CountedFunction) -> FunctionId {
        self.list.push(function);
        FunctionId(self.list.len() as u32 - 1)
    }

    fn called(&mut self, name: &'static str) -> FunctionId {
        if let Some(id) = self.by_call.get(name) {
            return *id;
        }
        let id = self.add(CountedFunction::named(name));
        self.by_call.insert(name, id);
        id
    }

    pub fn of_frame(&mut self, resolver: &mut Resolver, frame: &ChainFrame) -> FunctionId {
        let place = std::ptr::from_ref(frame) as usize;
        if let Some(id) = self.by_frame.get(&place) {
            return *id;
        }
        let id = match recorded_name(frame) {
            Some(name) => {
                let id = self.called(name);
                let function = &mut self.list[id.index()];
                function.module.get_or_insert_with(|| frame.module.clone());
                id
            }
            None => {
                let (mut key, bytes) = resolver.function(frame);
                if bytes.is_none() && !key.has_name() {
                    // Not known where its functions begin, so all are one.
                    key.code = (0, 0);
                }
                match self.by_key.get(&key) {
                    Some(id) => *id,
                    None => {
                        let id = self.add(counted(frame, &key));
                        self.by_key.insert(key, id);
                        id
                    }
                }
            }
        };
        self.by_frame.insert(place, id);
        id
    }
}

fn counted(frame: &ChainFrame, key: &FunctionKey) -> CountedFunction {
    let function = frame.source.function.as_ref();
    CountedFunction {
        name: match function {
            Some(function) => shown(&function.name),
            None if key.code == (0, 0) => "[no names]".to_owned(),
            None => format!("{}+{:#x}", frame.module.name, key.code.0),
        },
        function: function.cloned(),
        module: Some(frame.module.clone()),
        file: frame.source.file.clone(),
    }
}

/// Whether it is the recorder's own code.
pub fn is_recorder(frame: &ChainFrame) -> bool {
    frame.module.role == ModuleRole::Larder && frame.module.name.starts_with("liblarder_record")
}

/// The name of a function of the system or the allocator whose calls the recorder records, too.
fn recorded_name(frame: &ChainFrame) -> Option<&'static str> {
    let name = &*frame.source.function.as_ref()?.name;
    if frame.module.role == ModuleRole::Program {
        return None;
    }
    let calls = (0..=u8::MAX).filter_map(Call::from_code);
    calls.map(Call::name).find(|known| *known == name)
}
