//! Calls that are missing from the counters, as the warnings at the top of every report.

use std::io::{self, Write};

use larder_base::number::{counted, grouped};
use larder_base::printable;
use larder_trace::{Damage, Events, Losses, Origin, StopReason, Trace};

use super::Analysis;
use super::image::ImageReport;

/// One line for stderr; `None` if nothing is missing.
pub fn summary(analysis: &Analysis) -> Option<String> {
    let lost: u64 = analysis
        .images
        .iter()
        .map(|image| image.losses.calls())
        .sum();
    let stopped = analysis
        .images
        .iter()
        .any(|image| image.process.stop != StopReason::None);
    let mut parts = Vec::new();
    if let Some(first) = analysis.unreadable.first() {
        parts.push(match analysis.unreadable.len() {
            1 => first.clone(),
            more => format!(
                "{first} (and {} more)",
                counted(more as u64 - 1, "unreadable file")
            ),
        });
    }
    parts.extend(damage_summary(analysis.images.iter().flat_map(|image| {
        let damage = image.damage.iter();
        damage.map(|damage| (image.path.as_str(), damage))
    })));
    if stopped {
        parts.push("recording stopped before the program ended".to_owned());
    }
    if lost > 0 {
        parts.push(format!("{} not recorded", counted(lost, "call")));
    }
    (!parts.is_empty()).then(|| format!("{}; the report covers the rest", parts.join("; ")))
}

/// One line for stderr: calls that are counted, but perhaps at the wrong site.
pub fn incomplete_stacks(losses: impl Iterator<Item = Losses>) -> Option<String> {
    let calls = losses.map(|losses| losses.truncated_stacks);
    let calls = calls.fold(0, u64::saturating_add);
    (calls > 0).then(|| format!("{} whose stack is incomplete", counted(calls, "call")))
}

/// The lines for stderr of a trace that is read without an analysis.
pub fn of_events(trace: &Trace, events: &Events) -> Vec<String> {
    let mut lines = Vec::new();
    let path = printable::name(trace.path());
    let damage = events.damage().iter().map(|damage| (&*path, damage));
    lines.extend(damage_summary(damage));
    let lost = trace.losses().calls();
    if lost > 0 {
        lines.push(format!("{} not recorded", counted(lost, "call")));
    }
    lines.extend(incomplete_stacks([trace.losses()].into_iter()));
    lines
}

/// Warns that what needs times is missing, if a file was recorded without.
pub fn warn_without_times(analysis: &Analysis, what: &str) {
    if analysis.traces.iter().any(|trace| !trace.has_times()) {
        warn(&format!(
            "the trace has no times (record --no-times): {what}"
        ));
    }
}

pub fn warn(line: &str) {
    // A closed stderr is no error.
    let _ = writeln!(io::stderr(), "larder: warning: {line}");
}

/// The first damaged part, and the number of others; `None` if there is none.
fn damage_summary<'a>(mut damage: impl Iterator<Item = (&'a str, &'a Damage)>) -> Option<String> {
    let (path, first) = damage.next()?;
    let first = damage_line(path, first);
    let (mut more, mut events) = (0, 0u64);
    for (_, damage) in damage {
        more += 1;
        events = events.saturating_add(damage.events.unwrap_or(0));
    }
    Some(match (more, events) {
        (0, _) => first,
        (_, 0) => format!("{first} (and {} more)", counted(more, "damaged part")),
        _ => format!(
            "{first} (and {} more, {} lost)",
            counted(more, "damaged part"),
            counted(events, "event")
        ),
    })
}

/// All losses, and known leaks that are left out, a line each.
pub fn details(analysis: &Analysis) -> Vec<String> {
    let mut lines: Vec<String> = analysis
        .unreadable
        .iter()
        .map(|why| format!("not readable: {why}"))
        .collect();
    for image in &analysis.images {
        lines.extend(image_details(image));
    }
    lines.extend_from_slice(&analysis.suppressed);
    lines
}

fn image_details(image: &ImageReport) -> Vec<String> {
    const DAMAGE_SHOWN: usize = 5;
    let pid = image.process.pid;
    let mut lines = Vec::new();
    let mut add = |text: String| lines.push(format!("process {pid}: {text}"));
    if let Some(reason) = stop_reason(image) {
        add(format!(
            "recording stopped: {reason}; later calls are not counted"
        ));
    }
    if image.process.origin == Origin::Attach {
        add("recording began while it ran; blocks allocated before are unknown".to_owned());
    }
    let losses = &image.losses;
    for (calls, why) in [
        (losses.after_stop, "made after recording stopped"),
        (
            losses.reentrant,
            "made by signal handlers inside the recorder",
        ),
        (losses.vfork, "made by a vfork child"),
    ] {
        if calls > 0 {
            add(format!("{} not recorded: {why}", counted(calls, "call")));
        }
    }
    if losses.unrecorded_children > 0 {
        let children = grouped(losses.unrecorded_children);
        add(format!(
            "{children} of its children by fork could not be recorded"
        ));
    }
    for damage in image.damage.iter().take(DAMAGE_SHOWN) {
        add(damage_line(&image.path, damage));
    }
    if image.damage.len() > DAMAGE_SHOWN {
        let more = (image.damage.len() - DAMAGE_SHOWN) as u64;
        add(format!("{} more", counted(more, "damaged part")));
    }
    if losses.truncated_stacks > 0 {
        add(format!(
            "{} whose stack is incomplete",
            counted(losses.truncated_stacks, "call")
        ));
    }
    if !image.ended() {
        add(
            "its end was not recorded (killed, _exit, or still running); live blocks are those at that point"
                .to_owned(),
        );
    }
    lines
}

fn damage_line(path: &str, damage: &Damage) -> String {
    format!("{path}: {damage}")
}

/// Why recording stopped before the program ended, if it did.
pub fn stop_reason(image: &ImageReport) -> Option<String> {
    let reason = match image.process.stop {
        StopReason::None => return None,
        StopReason::DiskFull => "the disk was full",
        StopReason::Quota => "the disk quota was used up",
        StopReason::FileTooLarge => "the file reached its size limit",
        StopReason::WriteError => "the trace could not be written",
        StopReason::NoMemory => "the recorder ran out of memory",
        StopReason::Internal => "the recorder reached an unexpected state",
        StopReason::Filtered => "the program filters its system calls",
    };
    let errno = image.process.stop_errno;
    Some(match errno {
        0 => reason.to_owned(),
        errno => format!("{reason} (error {errno})"),
    })
}

#[cfg(test)]
mod tests {
    use larder_trace::DamageCause;

    use super::*;

    #[test]
    fn further_damage_is_counted_only_if_there_is_any() {
        let damage = |events| Damage {
            offset: 5,
            length: 7,
            events,
            cause: DamageCause::NoChunk,
        };
        let summary = |all: &[Damage]| damage_summary(all.iter().map(|damage| ("a", damage)));
        let one = damage_line("a", &damage(None));
        for (all, expected) in [
            (&[][..], None),
            (&[damage(Some(3))], Some(format!("a: {}", damage(Some(3))))),
            (
                &[damage(None), damage(None)],
                Some(format!("{one} (and 1 damaged part more)")),
            ),
            (
                &[damage(None), damage(Some(3)), damage(Some(4))],
                Some(format!("{one} (and 2 damaged parts more, 7 events lost)")),
            ),
        ] {
            assert_eq!(summary(all), expected);
        }
    }
}
