//! Writes a heap profile in the allocator's text format. Invariant: parse(write(profile)) = profile.

use std::io::{self, Write};

use super::heap::{Estimate, Figures, HeapProfile, ProfiledStack};

/// The profile of another sampler is written scaled.
pub fn write(profile: &HeapProfile, out: &mut dyn Write) -> io::Result<()> {
    write_as("heapprofile", profile, out)
}

/// Writes it under this name of the format.
pub fn write_as(format: &str, profile: &HeapProfile, out: &mut dyn Write) -> io::Result<()> {
    let total = profile.total();
    write!(out, "heap profile: ")?;
    both(&total, out)?;
    writeln!(out, " @ {format}")?;
    let estimated = profile.origin.has_intervals();
    if estimated {
        write!(out, "# larder 1; mean {}", profile.mean)?;
        if let Some(process) = profile.process {
            write!(out, "; process {process}")?;
        }
        write!(out, "; ")?;
        details(&total, out)?;
    }
    for stack in &profile.stacks {
        write_stack(stack, estimated, out)?;
    }
    if profile.cut_off {
        return Ok(());
    }
    writeln!(out, "\nMAPPED_LIBRARIES:")?;
    for mapping in &profile.mappings {
        let (start, end, offset) = (mapping.start, mapping.end, mapping.offset);
        write!(out, "{start:08x}-{end:08x} r-xp {offset:08x} 00:00 0 ")?;
        out.write_all(&mapping.path)?;
        writeln!(out)?;
    }
    Ok(())
}

fn write_stack(stack: &ProfiledStack, estimated: bool, out: &mut dyn Write) -> io::Result<()> {
    both(&stack.figures, out)?;
    write!(out, " @")?;
    for frame in &stack.frames {
        write!(out, " {frame:#x}")?;
    }
    if !estimated {
        return writeln!(out);
    }
    if stack.frames.is_empty() {
        write!(out, " 0x0")?;
    }
    write!(out, "\n# ")?;
    if stack.frames.is_empty() {
        write!(out, "other stacks; ")?;
    }
    if stack.truncated {
        write!(out, "truncated; ")?;
    }
    details(&stack.figures, out)
}

fn both(figures: &Figures, out: &mut dyn Write) -> io::Result<()> {
    estimate(figures.in_use, out)?;
    write!(out, " [")?;
    estimate(figures.allocated, out)?;
    write!(out, "]")
}

fn estimate(estimate: Estimate, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "{:.0}: {:.0}", estimate.objects, estimate.bytes)
}

fn details(figures: &Figures, out: &mut dyn Write) -> io::Result<()> {
    let spread = &figures.spread;
    let interval = spread.interval(figures.in_use.bytes);
    write!(
        out,
        "95 % in use: {:.0} to {:.0}; deviation {:.0} heaviest {:.0} sampled {:.0}; samples {:.0}",
        interval.low,
        interval.high,
        spread.variance.sqrt(),
        spread.heaviest,
        spread.sampled_bytes,
        spread.samples
    )?;
    write!(out, "; peak ")?;
    estimate(figures.at_peak, out)?;
    write!(out, "; at mark ")?;
    estimate(figures.at_mark, out)?;
    let freed = figures.lifetimes.iter().enumerate();
    let mut name = "; lifetimes";
    for (class, freed) in freed.filter(|(_, freed)| freed.round() > 0.0) {
        write!(out, "{name} {}:{freed:.0}", 1u64 << class)?;
        name = "";
    }
    writeln!(out)
}
