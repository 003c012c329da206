//! Collapsed stacks: `outermost;…;innermost COUNT` a line, the input of flame graphs.
//!
//! COUNT becomes as many mallocs of unknown size, 0, that are never freed: the trace has the file's
//! calls, and no meaningful bytes, lifetimes or times. A line of many calls takes as many events, so
//! the sum of the counts is bounded.

use std::io::{BufRead, Read};

use larder_base::failure::Result;
use larder_trace::writer::{Class, Stack, WrittenCall};
use larder_trace::{AllocCall, Call};

use super::source::{self, MAX_LINE_BYTES};
use super::target::{Module, Name, Target};
use super::{ImportPlan, Outcome};
use crate::error::AnalysisError;

/// Some 300 MB of trace.
const MAX_CALLS: u64 = 100_000_000;

pub fn import(plan: &ImportPlan, target: &mut Target) -> Result<Outcome> {
    let mut input = source::open(&plan.input)?;
    let mut outcome = Outcome::default();
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut bounded = input.by_ref().take(MAX_LINE_BYTES);
        let read = bounded.read_until(b'\n', &mut line);
        if read.map_err(|error| source::failed(&plan.input, error))? == 0 {
            break;
        }
        let Some((stack, count)) = parse(line.trim_ascii_end()) else {
            outcome.not_understood += u64::from(!line.trim_ascii().is_empty());
            continue;
        };
        if count > MAX_CALLS - outcome.calls {
            let lack = format!("more than {MAX_CALLS} calls: divide the counts by a power of ten");
            return Err(AnalysisError::unfit(&plan.input, lack).into());
        }
        write(target, stack, count, &mut outcome.calls)?;
    }
    if outcome.calls == 0 {
        let lack = "holds no collapsed stack: give lines of the form `main;f;g 3`";
        return Err(AnalysisError::unfit(&plan.input, lack).into());
    }
    Ok(outcome)
}

/// The stack and the count of a line.
fn parse(line: &[u8]) -> Option<(&[u8], u64)> {
    let space = line.iter().rposition(|&byte| byte == b' ')?;
    let (stack, count) = line.split_at(space);
    let count = std::str::from_utf8(count.get(1..)?).ok()?.parse().ok()?;
    (!stack.is_empty()).then_some((stack, count))
}

fn write(target: &mut Target, frames: &[u8], count: u64, calls: &mut u64) -> Result<()> {
    let mut stack = Stack::EMPTY;
    for frame in frames.split(|&byte| byte == b';') {
        stack = target.stack(
            stack,
            Module::INPUT,
            vec![(frame.into(), Name::default(), 0)],
        )?;
    }
    for _ in 0..count {
        *calls += 1;
        target.call(&WrittenCall {
            call: Call::Alloc(AllocCall::Malloc),
            class: Class::Alloc,
            stack,
            time: *calls,
            address: *calls * 16,
            size: 0,
            extra: 0,
            old: 0,
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_stack_and_a_count() {
        assert_eq!(
            parse(b"main;f g;h 12"),
            Some((b"main;f g;h".as_slice(), 12))
        );
        for bad in [
            "",
            "main",
            "main;f x",
            " 3",
            "main -1",
            "main 18446744073709551616",
        ] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
