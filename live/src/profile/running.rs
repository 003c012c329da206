//! The heap profile of a running process, read from outside. The process is neither stopped nor
//! signalled.

use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use larder_analysis::reading::losses;
use larder_base::failure::Result;
use larder_base::number::counted;
use larder_base::printable;

use super::heap::{Estimate, Figures, HeapProfile, Mapping, ProfiledStack};
use super::interval::Spread;
use crate::error::LiveError;
use crate::process::{Obstacle, Process, Profile, Site};

pub fn open(id: u32) -> Result<Process> {
    Process::open(id).map_err(|obstacle| obstacle.failure(id))
}

/// The process and its command, printable.
pub fn title(process: &Process) -> String {
    let id = process.id();
    let name = std::fs::read(format!("/proc/{id}/comm")).unwrap_or_default();
    format!(
        "process {id}: {}",
        printable::escape_bytes(name.trim_ascii_end())
    )
}

/// The current profile. If a site changes while it is read, one sample may be in some of its figures
/// and not in others. A site with invalid figures is left out, and reported.
pub fn read(process: &Process) -> Result<HeapProfile> {
    let id = process.id();
    let profile = process
        .profile()
        .and_then(|seen| with_modules(process, seen))
        .map_err(|obstacle| obstacle.failure(id))?;
    if profile.mean == 0 && profile.stacks.is_empty() {
        return Err(LiveError::NoSamples(id).into());
    }
    if profile.damaged > 0 {
        let sites = counted(profile.damaged as u64, "stack");
        losses::warn(&format!(
            "process {id}: {sites} changed while they were read, and are left out"
        ));
    }
    Ok(profile)
}

/// Where its code is mapped.
pub fn mappings(process: &Process) -> std::result::Result<Vec<Mapping>, Obstacle> {
    let modules = process.modules()?;
    let mappings = process.mappings()?;
    let code = mappings
        .into_iter()
        .filter(|mapping| mapping.executable && !mapping.path.is_empty());
    Ok(code
        .map(|mapping| {
            // The path by which the file can be read; the process may have another root.
            let inside = |module: &&crate::process::Module| {
                (module.start..module.end).contains(&mapping.start)
            };
            let module = modules.iter().find(inside);
            Mapping {
                start: mapping.start,
                end: mapping.end,
                offset: mapping.offset,
                path: module.map_or(mapping.path, |module| {
                    module.file.as_os_str().as_bytes().to_vec()
                }),
            }
        })
        .collect())
}

/// A profile of a process, and the current addresses of its modules.
pub fn with_modules(
    process: &Process,
    seen: Profile,
) -> std::result::Result<HeapProfile, Obstacle> {
    Ok(HeapProfile {
        mean: seen.mean,
        process: Some(process.id()),
        mappings: mappings(process)?,
        stacks: seen.sites.into_iter().map(stack).collect(),
        damaged: seen.unsound,
        ..HeapProfile::default()
    })
}

fn stack(site: Site) -> ProfiledStack {
    let estimate = |e: crate::process::Estimate| Estimate {
        objects: e.objects,
        bytes: e.bytes,
    };
    ProfiledStack {
        frames: site.frames,
        truncated: site.truncated,
        figures: Figures {
            in_use: estimate(site.in_use),
            allocated: estimate(site.allocated),
            at_peak: estimate(site.at_peak),
            at_mark: estimate(site.at_mark),
            spread: Spread {
                variance: site.variance,
                heaviest: site.heaviest,
                sampled_bytes: site.sampled_bytes as f64,
                samples: site.samples as f64,
            },
            lifetimes: site.lifetimes.into_iter().map(f64::from).collect(),
            ..Figures::default()
        },
    }
}

/// Takes snapshots of a process at an interval; also returns the seconds between the first and the
/// last. Shows progress on stderr if that is a terminal.
pub fn series(process: &Process, count: u32, apart: Duration) -> Result<(Vec<HeapProfile>, f64)> {
    let bar = progress_bar(apart * count.saturating_sub(1));
    let start = Instant::now();
    let mut readings = vec![read(process)?];
    for number in 1..count {
        let due = start + apart * number;
        while Instant::now() < due {
            let left = due.saturating_duration_since(Instant::now());
            std::thread::sleep(left.min(Duration::from_millis(100)));
            bar.set_position(start.elapsed().as_millis() as u64);
        }
        readings.push(read(process)?);
    }
    bar.finish_and_clear();
    Ok((readings, start.elapsed().as_secs_f64()))
}

fn progress_bar(length: Duration) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("watching {wide_bar} {percent:>3} %  {eta} left");
    let bar = ProgressBar::new(length.as_millis() as u64);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}
