//! The trace that an import makes: a directory with one file, whole or not there at all.
//!
//! Imported stacks have no addresses: each distinct frame gets one, in a module that stands for
//! the input, and the trace carries its name. Invariant: frame n has the return address
//! `FIRST_ADDRESS` + 2n + 1, so that the address looked up is unlike any other frame's.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use larder_trace::ModuleId;
use larder_trace::symbols::Function;
use larder_trace::writer::{About, Stack, Writer, WrittenCall};
use rustc_hash::FxHashMap;
use tempfile::TempDir;

use super::ImportPlan;
use crate::failure::{Failure, Result};
use crate::printable;

const FIRST_ADDRESS: u64 = 1 << 16;
/// Beyond any number of frames that fits in memory.
const END_ADDRESS: u64 = 1 << 48;

/// The functions at one place, innermost first: name, file, line of each.
pub type Place = Vec<(Vec<u8>, Vec<u8>, u32)>;

pub struct Target {
    writer: Writer<BufWriter<File>>,
    module: ModuleId,
    /// The return address of each distinct frame.
    frames: FxHashMap<Place, u64>,
    directory: TempDir,
    output: PathBuf,
}

impl Target {
    pub fn create(plan: &ImportPlan) -> Result<Self> {
        let cannot = |error: io::Error| cannot_write(&plan.output, &error);
        if plan.output.symlink_metadata().is_ok() {
            return Err(Failure::failed(format!(
                "{}: exists: name another directory with -o, or remove it",
                printable::name(&plan.output)
            )));
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
        let mut writer = Writer::new(BufWriter::new(file), &about).map_err(cannot)?;
        let module = writer
            .module(input, &[], FIRST_ADDRESS, END_ADDRESS)
            .map_err(cannot)?;
        Ok(Self {
            writer,
            module,
            frames: FxHashMap::default(),
            directory,
            output: plan.output.clone(),
        })
    }

    /// The stack of a frame at this place, called by `parent`.
    pub fn stack(&mut self, parent: Stack, place: Place) -> Result<Stack> {
        let address = match self.frames.get(&place) {
            Some(address) => *address,
            None => self.name(place)?,
        };
        Ok(self.writer.stack(parent, address))
    }

    fn name(&mut self, place: Place) -> Result<u64> {
        let address = FIRST_ADDRESS + 2 * self.frames.len() as u64 + 1;
        let functions = place.iter().map(|(name, file, line)| Function {
            name,
            file,
            line: *line,
        });
        let functions: Vec<Function<'_>> = functions.collect();
        let named = self.writer.symbols(self.module, address - 1, &functions);
        named.map_err(|error| cannot_write(&self.output, &error))?;
        self.frames.insert(place, address);
        Ok(address)
    }

    pub fn call(&mut self, call: &WrittenCall) -> Result<()> {
        let written = self.writer.call(call);
        written.map_err(|error| cannot_write(&self.output, &error))
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
            // It is not there any more.
            let _ = directory.keep();
            Ok(())
        });
        moved.map_err(|error| cannot_write(&output, &error))
    }
}

fn cannot_write(path: &std::path::Path, error: &io::Error) -> Failure {
    Failure::failed(format!(
        "{}: {}: name another directory with -o",
        printable::name(path),
        crate::target::reason(error)
    ))
}
