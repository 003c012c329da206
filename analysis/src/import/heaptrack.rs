//! heaptrack's interpreted file, written by `heaptrack PROGRAM`: text, compressed by zstd or gzip.
//!
//! A line is a letter and hexadecimal numbers: `s` a string, `i` an instruction with its functions, `t`
//! a stack's frame and parent, `a` a size at a stack, `+` and `-` allocate and free a block of an `a`,
//! `c` milliseconds. Strings, `i` and `t` are numbered from 1, `a` from 0.
//!
//! The file has no threads, no names of the called functions (each is a malloc here, a realloc a free
//! and a malloc), and does not tell equal blocks apart: a free takes the youngest. Counts, sizes, peak,
//! leaks and stacks are the file's. Memory grows with the distinct entries and live blocks.

use std::io::{BufRead, Read};
use std::path::Path;

use larder_base::failure::Result;
use larder_base::printable;
use larder_trace::symbols::{MAX_FUNCTIONS, MAX_TEXT_BYTES};
use larder_trace::writer::{Class, Stack, WrittenCall};
use larder_trace::{AllocCall, Call, FreeCall};

use super::source::{self, MAX_LINE_BYTES};
use super::target::{Module, Name, Place, Target};
use super::{ImportPlan, Outcome};
use crate::error::AnalysisError;

/// The version of the file format from which on strings are preceded by their length.
const FILE_VERSION: u64 = 3;

/// A size at a stack, and its live blocks' addresses.
struct Allocation {
    size: u64,
    stack: Stack,
    live: Vec<u64>,
}

#[derive(Default)]
struct Reader {
    strings: Vec<Name>,
    instructions: Vec<(Module, Place)>,
    stacks: Vec<Stack>,
    allocations: Vec<Allocation>,
    /// Milliseconds since the start.
    time: u64,
    next_address: u64,
    calls: u64,
}

pub fn import(plan: &ImportPlan, target: &mut Target) -> Result<Outcome> {
    let name = printable::name(&plan.input);
    let mut input = source::open(&plan.input)?;
    let mut reader = Reader::default();
    let mut outcome = Outcome::default();
    let mut line = Vec::new();
    let mut known = false;
    loop {
        line.clear();
        let read = input
            .by_ref()
            .take(MAX_LINE_BYTES)
            .read_until(b'\n', &mut line);
        match read {
            Ok(0) => break,
            Ok(_) => {}
            // The part before it is complete.
            Err(error) if known => {
                let reason = larder_base::target::reason(&error);
                outcome.warning = Some(format!("{name}: {reason}: the part before it is imported"));
                break;
            }
            Err(error) => return Err(source::failed(&plan.input, error)),
        }
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        if !known {
            expect_version(&plan.input, text)?;
            known = true;
        } else if reader.line(text, target)?.is_none() {
            outcome.not_understood += 1;
        }
    }
    if !known {
        expect_version(&plan.input, b"")?;
    }
    outcome.calls = reader.calls;
    Ok(outcome)
}

fn expect_version(path: &Path, line: &[u8]) -> Result<()> {
    let mut words = Words(line);
    match (words.word(), words.number(), words.number()) {
        (Some(b"v"), Some(_), Some(FILE_VERSION)) => Ok(()),
        (Some(b"v"), Some(_), version) => {
            let lack = format!(
                "heaptrack's file of version {}, and only {FILE_VERSION} is supported: record with heaptrack 1.4 or 1.5",
                version.unwrap_or(0)
            );
            Err(AnalysisError::unfit(path, lack).into())
        }
        _ => {
            let lack = "not a file of heaptrack: give what `heaptrack PROGRAM` wrote";
            Err(AnalysisError::unfit(path, lack).into())
        }
    }
}

impl Reader {
    /// Processes a line; `None` if it is malformed.
    fn line(&mut self, line: &[u8], target: &mut Target) -> Result<Option<()>> {
        let mut words = Words(line);
        let Some(kind) = words.word() else {
            return Ok(line.is_empty().then_some(()));
        };
        Ok(match kind {
            b"s" => self.string(line),
            b"i" => self.instruction(words, target)?,
            b"t" => return self.stack(words, target),
            b"a" => self.allocation(words),
            b"+" => return self.made(words, target),
            b"-" => return self.freed(words, target),
            b"c" => words.number().map(|time| self.time = self.time.max(time)),
            // The command line, the system, resident memory, comments, attaching, suppressions.
            b"X" | b"I" | b"R" | b"#" | b"A" | b"S" => Some(()),
            _ => None,
        })
    }

    fn string(&mut self, line: &[u8]) -> Option<()> {
        let mut words = Words(line.get(2..)?);
        let length = usize::try_from(words.number()?).ok()?;
        // A malformed one keeps its number.
        let text = words.0.get(..length).unwrap_or(words.0);
        self.strings
            .push(text.get(..MAX_TEXT_BYTES).unwrap_or(text).into());
        (words.0.len() == length).then_some(())
    }

    fn text(&self, number: u64) -> Name {
        let index = number
            .checked_sub(1)
            .and_then(|index| usize::try_from(index).ok());
        let text = index.and_then(|index| self.strings.get(index));
        text.cloned().unwrap_or_default()
    }

    fn instruction(&mut self, mut words: Words<'_>, target: &mut Target) -> Result<Option<()>> {
        let (address, module) = (words.number(), words.number());
        let module = target.module(&self.text(module.unwrap_or(0)))?;
        // The addresses of imported frames are arbitrary.
        let unnamed = || Name::from(format!("{:#x}", address.unwrap_or(0)).as_bytes());
        let mut place = Vec::new();
        while place.len() < MAX_FUNCTIONS
            && let Some(function) = words.number()
        {
            let (file, line) = (words.number().unwrap_or(0), words.number().unwrap_or(0));
            let line = u32::try_from(line).unwrap_or(0);
            let mut name = self.text(function);
            if name.is_empty() {
                name = unnamed();
            }
            place.push((name, self.text(file), line));
        }
        if place.is_empty() {
            place.push((unnamed(), Name::default(), 0));
        }
        self.instructions.push((module, place));
        Ok(address.map(drop))
    }

    fn stack(&mut self, mut words: Words<'_>, target: &mut Target) -> Result<Option<()>> {
        let frame = words.index_from_1(self.instructions.len());
        let parent = words.number();
        let parent_index = parent.and_then(|parent| usize::try_from(parent.checked_sub(1)?).ok());
        let parent_stack = match parent {
            Some(0) => Some(Stack::EMPTY),
            _ => parent_index.and_then(|index| self.stacks.get(index).copied()),
        };
        let place = frame.and_then(|index| self.instructions.get(index));
        let (Some((module, place)), Some(parent)) = (place, parent_stack) else {
            self.stacks.push(Stack::EMPTY);
            return Ok(None);
        };
        let stack = target.stack(parent, *module, place.clone())?;
        self.stacks.push(stack);
        Ok(Some(()))
    }

    fn allocation(&mut self, mut words: Words<'_>) -> Option<()> {
        let size = words.number();
        let stack = words.index_from_1(self.stacks.len());
        let stack = stack.and_then(|index| self.stacks.get(index)).copied();
        self.allocations.push(Allocation {
            size: size.unwrap_or(0),
            stack: stack.unwrap_or(Stack::EMPTY),
            live: Vec::new(),
        });
        (size.is_some() && stack.is_some()).then_some(())
    }

    fn find(&mut self, mut words: Words<'_>) -> Option<&mut Allocation> {
        let index = usize::try_from(words.number()?).ok()?;
        self.allocations.get_mut(index)
    }

    fn made(&mut self, words: Words<'_>, target: &mut Target) -> Result<Option<()>> {
        let (time, address) = (self.time, self.next_address + 16);
        let Some(allocation) = self.find(words) else {
            return Ok(None);
        };
        allocation.live.push(address);
        let (stack, size) = (allocation.stack, allocation.size);
        self.next_address = address;
        self.calls += 1;
        let call = Call::Alloc(AllocCall::Malloc);
        target.call(&written(call, Class::Alloc, stack, time, address, size))?;
        Ok(Some(()))
    }

    fn freed(&mut self, words: Words<'_>, target: &mut Target) -> Result<Option<()>> {
        let time = self.time;
        let Some(address) = self
            .find(words)
            .and_then(|allocation| allocation.live.pop())
        else {
            return Ok(None);
        };
        self.calls += 1;
        // The file has no stacks of frees.
        let call = Call::Free(FreeCall::Free);
        target.call(&written(call, Class::Free, Stack::EMPTY, time, address, 0))?;
        Ok(Some(()))
    }
}

fn written(
    call: Call,
    class: Class,
    stack: Stack,
    ms: u64,
    address: u64,
    size: u64,
) -> WrittenCall {
    WrittenCall {
        call,
        class,
        stack,
        time: ms.saturating_mul(1_000_000),
        address,
        size,
        extra: 0,
        old: 0,
    }
}

/// The rest of a line; words end at a space.
struct Words<'a>(&'a [u8]);

impl<'a> Words<'a> {
    fn word(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|&byte| byte == b' ');
        let (word, rest) = self.0.split_at(end.unwrap_or(self.0.len()));
        self.0 = rest.get(1..).unwrap_or_default();
        (!word.is_empty()).then_some(word)
    }

    fn number(&mut self) -> Option<u64> {
        let word = std::str::from_utf8(self.word()?).ok()?;
        u64::from_str_radix(word, 16).ok()
    }

    /// A number from 1 to `count`, less 1.
    fn index_from_1(&mut self, count: usize) -> Option<usize> {
        let index = usize::try_from(self.number()?.checked_sub(1)?).ok()?;
        (index < count).then_some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::args::ImportFormat;

    #[test]
    fn a_text_that_is_named_without_end_takes_its_own_memory() {
        let folder = tempfile::tempdir().unwrap();
        let mut target = Target::create(&ImportPlan {
            input: "x".into(),
            output: folder.path().join("trace"),
            format: ImportFormat::Heaptrack,
        })
        .unwrap();
        let mut reader = Reader::default();
        let long = "n".repeat(500_000);
        let instruction = format!("i 10 0{}", " 1 1 1".repeat(100_000));
        for line in [&format!("s {:x} {long}", long.len()), &instruction] {
            assert_eq!(reader.line(line.as_bytes(), &mut target).unwrap(), Some(()));
        }
        let (_, place) = &reader.instructions[0];
        assert_eq!(place.len(), MAX_FUNCTIONS);
        assert_eq!(place[0].0.len(), MAX_TEXT_BYTES);
        assert!(
            place
                .iter()
                .all(|(name, ..)| Name::ptr_eq(name, &place[0].0))
        );
    }
}
