//! A debug curl's memory log: the stack of each call is its source line. The log has no threads and no
//! times; a call's time is its line number.

use larder_base::failure::Result;
use larder_memdebug::line::{Call as Logged, Line};
use larder_trace::writer::{Class, Stack, WrittenCall};
use larder_trace::{AllocCall, Call, FreeCall};
use rustc_hash::FxHashMap;

use super::target::{Module, Target};
use super::{ImportPlan, Outcome};
use crate::memdebug::log::Log;

pub fn import(plan: &ImportPlan, target: &mut Target) -> Result<Outcome> {
    let log = Log::open(&plan.input)?;
    let mut outcome = Outcome::default();
    let mut failure = None;
    let mut stacks: FxHashMap<Vec<u8>, Stack> = FxHashMap::default();
    let damage = log.read(|raw| {
        let Ok(line) = Line::parse(raw.bytes) else {
            outcome.not_understood += 1;
            return true;
        };
        let Some(call) = written(&line.call, raw.number) else {
            return true;
        };
        let stack = match stacks.get(line.place) {
            Some(stack) => Ok(*stack),
            None => stack_of(line.place, target),
        };
        let done = stack.and_then(|stack| {
            if !stacks.contains_key(line.place) {
                stacks.insert(line.place.to_vec(), stack);
            }
            target.call(&WrittenCall { stack, ..call })
        });
        outcome.calls += 1;
        failure = done.err();
        failure.is_none()
    })?;
    outcome.warning = damage.summary(&plan.input);
    failure.map_or(Ok(outcome), Err)
}

fn stack_of(place: &[u8], target: &mut Target) -> Result<Stack> {
    let (path, line) = Line::split_place(place);
    let line = u32::try_from(line).unwrap_or(0);
    // Sites are identified by their function, which the log does not name.
    let name = place.rsplit(|&byte| byte == b'/').next().unwrap_or(place);
    let place = vec![(name.into(), path.into(), line)];
    target.stack(Stack::EMPTY, Module::INPUT, place)
}

/// The call in the trace's form, still without a stack; `None` if it is not about memory.
fn written(logged: &Logged, time: u64) -> Option<WrittenCall> {
    let made = |call, address, size| WrittenCall {
        call: Call::Alloc(call),
        class: Class::Alloc,
        stack: Stack::EMPTY,
        time,
        address,
        size,
        extra: 0,
        old: 0,
    };
    Some(match *logged {
        Logged::Malloc { size, at } => made(AllocCall::Malloc, at, size),
        Logged::Strdup { size, at, .. } => made(AllocCall::Strdup, at, size),
        Logged::Wcsdup { size, at, .. } => made(AllocCall::Wcsdup, at, size),
        Logged::Calloc { count, size, at } => WrittenCall {
            extra: count,
            ..made(AllocCall::Calloc, at, count.saturating_mul(size))
        },
        Logged::Realloc { old, size, at } => WrittenCall {
            class: Class::Realloc,
            old,
            ..made(AllocCall::Realloc, at, size)
        },
        Logged::Free { at } => WrittenCall {
            call: Call::Free(FreeCall::Free),
            class: Class::Free,
            ..made(AllocCall::Malloc, at, 0)
        },
        _ => return None,
    })
}
