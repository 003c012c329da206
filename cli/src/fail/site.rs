//! The source line of a call that failed.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use larder_analysis::reading::attribute::{attribute, functions};
use larder_analysis::reading::chain::Chain;
use larder_analysis::reading::naming::{frame_name, frame_place, without_start};
use larder_analysis::reading::resolve::{ChainFrame, Charging, Resolver};
use larder_analysis::symbols::ElfFile;
use larder_trace::Module;

use super::log::FailedCall;

/// Callers shown with a site.
const CALLERS: usize = 4;

/// A source line and its stack, escaped.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FailSite {
    /// `function  file:line`.
    pub line: String,
    /// Between the site and the call: functions of libraries, or wrappers, the outermost first.
    pub through: Vec<String>,
    /// Functions further out, the nearest first.
    pub callers: Vec<String>,
    /// The whole stack in this form, innermost first.
    pub stack: Vec<String>,
}

pub struct Sites(Resolver);

impl Sites {
    pub fn new() -> Self {
        Sites(Resolver::new(Charging::default()))
    }

    pub fn of(&mut self, failed: &FailedCall) -> FailSite {
        let chain: Chain = failed
            .frames
            .iter()
            .map(|(path, address)| {
                let module = module(path);
                self.0
                    .frames_in_file(Some(&module), address.saturating_sub(1))
            })
            .collect();
        let frames: Vec<&ChainFrame> = functions(&chain).collect();
        let shown = |frame: &ChainFrame| format!("{}  {}", frame_name(frame), frame_place(frame));
        let site = attribute(&chain, &[]).site;
        let kept = without_start(&frames);
        let callers = kept.iter().skip(site.map_or(0, |site| site + 1));
        let through = frames.iter().take(site.unwrap_or(0)).filter(|f| !f.family);
        let through: Vec<_> = through.map(|frame| frame_name(frame)).collect();
        let site = site.and_then(|site| frames.get(site));
        FailSite {
            line: site.map_or("[no stack]".to_owned(), |frame| shown(frame)),
            through: through.into_iter().rev().take(CALLERS).collect(),
            callers: callers.take(CALLERS).map(|f| frame_name(f)).collect(),
            stack: kept.iter().map(|f| shown(f)).collect(),
        }
    }
}

/// A module at its own addresses. The library records no build ids, so they are read from the file.
fn module(path: &[u8]) -> Module {
    let file = ElfFile::open(Path::new(OsStr::from_bytes(path)));
    let build_id = file.map_or(Vec::new(), |file| file.build_id());
    Module::of_file(path.to_vec(), build_id)
}
