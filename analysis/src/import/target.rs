//! The trace that an import makes: a directory with one file, complete or absent.
//!
//! The addresses of imported stacks mean nothing: each distinct frame gets one, in a module that stands
//! for the input or that the input names, and the trace carries the frame's name.
//! Invariant: frame n has the return address `Module::start` + 2n + 1, so the address looked up differs
//! from any other frame's.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::rc::Rc;

use larder_base::error::system;
use larder_base::failure::{Failure, Result};
use larder_base::printable;
use larder_trace::ModuleId;
use larder_trace::symbols::Function;
use larder_trace::writer::{About, Stack, Writer, WrittenCall};
use rustc_hash::FxHashMap;
use tempfile::TempDir;

use super::ImportPlan;
use crate::error::AnalysisError;

/// The address range of a module: more than the largest number of frames.
const MODULE_BYTES: u64 = 1 << 36;
/// All within the bits of an address in a trace; further modules count as the input.
const MAX_MODULES: u64 = 1 << 20;

/// A module of the trace; the first stands for the input itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Module(u32);

impl Module {
    pub const INPUT: Module = Module(0);

    fn start(self) -> u64 {
        (u64::from(self.0) + 1) * MODULE_BYTES
    }
}

/// Shared: a line of the input may name one text a hundred thousand times.
pub type Name = Rc<[u8]>;

/// The functions at one place, innermost first: name, file, line of each.
pub type Place = Vec<(Name, Name, u32)>;

pub struct Target {
    writer: Writer<BufWriter<File>>,
    modules: FxHashMap<Vec<u8>, Module>,
    /// The return address of each distinct frame.
    frames: FxHashMap<(Module, Place), u64>,
    directory: TempDir,
    output: PathBuf,
}

impl Target {
    pub fn create(plan: &ImportPlan) -> Result<Self> {
        let cannot = |error: io::Error| cannot_write(&plan.output, error);
        if plan.output.symlink_metadata().is_ok() {
            return Err(AnalysisError::Exists(plan.output.clone()).into());
        }
        let parent = plan
            .output
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        let directory = tempfile::Builder::new()
            .prefix(".larder-import-")
            .tempdir_in(parent.unwrap_or(".".as_ref()))
            .map_err(cannot)?;
        let file = File::create_new(directory.path().join("0-0.ltrace")).map_err(cannot)?;
        let input = plan.input.as_os_str().as_bytes();
        let executable = [b"imported from ".as_slice(), input].concat();
        let about = About {
            pid: 0,
            executable: &executable,
            argv: &[],
            start_wall_ns: 0,
        };
        let writer = Writer::new(BufWriter::new(file), &about).map_err(cannot)?;
        let mut target = Self {
            writer,
            modules: FxHashMap::default(),
            frames: FxHashMap::default(),
            directory,
            output: plan.output.clone(),
        };
        target.module(input)?;
        Ok(target)
    }

    /// The module of this path.
    pub fn module(&mut self, path: &[u8]) -> Result<Module> {
        if let Some(module) = self.modules.get(path) {
            return Ok(*module);
        }
        if self.modules.len() as u64 >= MAX_MODULES {
            return Ok(Module::INPUT);
        }
        let module = Module(self.modules.len() as u32);
        let (start, end) = (module.start(), module.start() + MODULE_BYTES);
        let written = self.writer.module(path, &[], start, end);
        written.map_err(|error| cannot_write(&self.output, error))?;
        self.modules.insert(path.to_vec(), module);
        Ok(module)
    }

    /// The stack of a frame at this place, called by `parent`.
    pub fn stack(&mut self, parent: Stack, module: Module, place: Place) -> Result<Stack> {
        let frame = (module, place);
        let address = match self.frames.get(&frame) {
            Some(address) => *address,
            None => self.name(frame)?,
        };
        Ok(self.writer.stack(parent, address))
    }

    fn name(&mut self, frame: (Module, Place)) -> Result<u64> {
        let (module, place) = &frame;
        let address = module.start() + 2 * self.frames.len() as u64 + 1;
        let functions = place.iter().map(|(name, file, line)| Function {
            name,
            file,
            line: *line,
        });
        let functions: Vec<Function<'_>> = functions.collect();
        let named = self
            .writer
            .symbols(ModuleId(module.0), address - 1, &functions);
        named.map_err(|error| cannot_write(&self.output, error))?;
        self.frames.insert(frame, address);
        Ok(address)
    }

    pub fn call(&mut self, call: &WrittenCall) -> Result<()> {
        let written = self.writer.call(call);
        written.map_err(|error| cannot_write(&self.output, error))
    }

    /// The directory appears under its name.
    pub fn finish(self) -> Result<()> {
        let Target {
            writer,
            directory,
            output,
            ..
        } = self;
        let moved = writer.finish().map(drop).and_then(|()| {
            fs::rename(directory.path(), &output)?;
            // Its name is gone already.
            let _ = directory.keep();
            Ok(())
        });
        moved.map_err(|error| cannot_write(&output, error))
    }
}

fn cannot_write(path: &std::path::Path, error: io::Error) -> Failure {
    system(printable::name(path), "name another directory with -o")(error).into()
}
