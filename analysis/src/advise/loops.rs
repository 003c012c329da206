//! The loop in which a line allocates, and its number of iterations.
//!
//! A trace shows that a stack repeated, and not which of its functions has the loop: the machine code
//! does. The loop is the innermost one around a call of the stack, unless the trace shows that its
//! function returned between the calls. A stack comes up to once an iteration, so the count of the most
//! frequent one is a lower bound of the iterations. One pass over origins and their frames.

use std::rc::Rc;

use larder_base::number::counted;
use larder_trace::{StackId, StackTable};
use rustc_hash::FxHashMap;

use super::facts::{Facts, ImageFacts};
use super::finding::Finding;
use super::rates::{FEWEST_REPEATS, ratio};
use crate::reading::chain::Chain;
use crate::reading::naming::{frame_place, function_name};
use crate::reading::observe::Finished;
use crate::reading::resolve::{ChainFrame, Resolver};
use crate::symbols::loops::{Around, CodeLoop};

/// In percent of a stack's calls: if at least this many are in the same call of a function, that
/// function's loop may cause them; if up to this many are, it does not.
const IN_ONE_CALL: u64 = 50;
const IN_NEW_CALLS: u64 = 1;

/// The loop of an origin's calls.
pub struct Place {
    /// Index into `ImageFacts::iterations`.
    number: usize,
    frames: Rc<[ChainFrame]>,
    /// The index of the loop's function in `frames`.
    owner: usize,
}

impl Place {
    pub fn frame(&self) -> &ChainFrame {
        &self.frames[self.owner]
    }

    /// The physical frame of the stack with the loop, counted from the innermost.
    pub fn depth(&self, chain: &Chain) -> Option<usize> {
        chain
            .iter()
            .position(|frames| Rc::ptr_eq(frames, &self.frames))
    }
}

/// Loops by module and code.
type LoopKey = (*const u8, CodeLoop);

#[derive(Default)]
pub struct Loops {
    numbers: FxHashMap<LoopKey, usize>,
    /// The count of the most frequent stack, by loop and by the stack that leads to its function.
    most: FxHashMap<(usize, StackId), u64>,
}

impl Loops {
    /// Adds the loop of a stack's calls, with their number.
    pub fn add(
        &mut self,
        image: &mut Finished<'_, '_>,
        stack: StackId,
        calls: u64,
        facts: Option<&Facts>,
    ) -> Option<Place> {
        if calls < FEWEST_REPEATS {
            return None;
        }
        let chain = image.chain(stack);
        let (depth, found) = innermost(&chain, image.resolver, facts)?;
        let frames = chain.get(depth)?;
        let module = Rc::as_ptr(&frames.last()?.module).cast::<u8>();
        let next = self.numbers.len();
        let header = CodeLoop { latch: 0, ..found };
        let number = *self.numbers.entry((module, header)).or_insert(next);
        let led_there = above(image.events.stacks(), stack, depth + 1);
        let most = self.most.entry((number, led_there)).or_default();
        *most = calls.max(*most);
        Some(Place {
            number,
            owner: owner(frames, found, image.resolver)?,
            frames: frames.clone(),
        })
    }

    /// The least number of iterations of each loop.
    pub fn iterations(&self) -> Vec<u64> {
        let mut iterations = vec![0u64; self.numbers.len()];
        for ((number, _), most) in &self.most {
            iterations[*number] = iterations[*number].saturating_add(*most);
        }
        iterations
    }
}

/// The frame of the stack whose loop repeats it, counted from the innermost.
fn innermost(
    chain: &Chain,
    resolver: &mut Resolver,
    facts: Option<&Facts>,
) -> Option<(usize, CodeLoop)> {
    let mut allocates = true;
    let all = chain.depth();
    for (depth, frames) in chain.iter().enumerate() {
        let frame = frames.last()?;
        match resolver.loop_around(frame, allocates) {
            Around::Unknown => return None,
            Around::NoLoop => {}
            Around::Loop(found) => {
                let stayed = facts.and_then(|facts| facts.stayed(all - depth - 1));
                match stayed.unwrap_or(100) {
                    IN_ONE_CALL.. => return Some((depth, found)),
                    ..=IN_NEW_CALLS => {}
                    _ => return None,
                }
            }
        }
        allocates = allocates && frame.family;
    }
    None
}

/// Whether the innermost function of a stack, of the program's own, has a loop around its call. Where it is
/// inlined, the loop around may be its caller's.
pub fn repeats(chain: &Chain, resolver: &mut Resolver) -> bool {
    let innermost = chain.iter().find_map(|frames| {
        let own = frames.iter().position(|frame| !frame.is_passed_over())?;
        Some((frames, own, frames.last()?))
    });
    let Some((frames, own, frame)) = innermost else {
        return false;
    };
    match resolver.loop_around(frame, false) {
        Around::Loop(found) => owner(frames, found, resolver).is_some_and(|owner| owner <= own),
        _ => false,
    }
}

/// The function with the loop: the innermost one at the call that also contains the jump back and the
/// start of each iteration.
fn owner(at: &Rc<[ChainFrame]>, found: CodeLoop, resolver: &mut Resolver) -> Option<usize> {
    let frame = at.last()?;
    let others = [found.header, found.latch].map(|address| resolver.frames_beside(frame, address));
    let common = others.iter().map(|other| shared(at, other)).min()?;
    at.len().checked_sub(common.max(1))
}

/// The number of functions that two places share, from the outermost: calls inlined at one line.
fn shared(a: &[ChainFrame], b: &[ChainFrame]) -> usize {
    let symbol = |frame: &ChainFrame| frame.source.function.as_ref().map(|f| f.symbol.clone());
    let mut count = 0;
    for (a, b) in a.iter().rev().zip(b.iter().rev()) {
        if symbol(a) != symbol(b) {
            break;
        }
        count += 1;
        if (&a.source.file, a.source.line) != (&b.source.file, b.source.line) {
            break;
        }
    }
    count
}

fn above(stacks: &StackTable, stack: StackId, frames: usize) -> StackId {
    (0..frames).fold(stack, |at, _| stacks.parent(at))
}

/// A loop and the number of a finding's calls in it.
pub struct LoopRate<'a> {
    pub frame: &'a ChainFrame,
    pub iterations: u64,
    pub calls: u64,
}

impl LoopRate<'_> {
    pub fn an_iteration(&self) -> f64 {
        self.calls as f64 / self.iterations.max(1) as f64
    }
}

/// The loop of most of a finding's calls.
pub fn of_finding<'a>(image: &'a ImageFacts, finding: &Finding) -> Option<LoopRate<'a>> {
    let mut origins: Vec<usize> = finding.parts.iter().map(|part| part.origin).collect();
    let named = image.sites[finding.site].place;
    origins.retain(|origin| image.sites[*origin].place == named);
    let calls = |origin: &usize| image.sites[*origin].sums.calls;
    let all: u64 = origins.iter().map(calls).sum();
    let place = |origin: &usize| image.sites[*origin].loop_place.as_ref();
    let heaviest = origins
        .iter()
        .filter(|o| place(o).is_some())
        .max_by_key(|o| calls(o))?;
    let at = place(heaviest)?;
    let here = origins.iter();
    let here = here.filter(|o| place(o).is_some_and(|place| place.number == at.number));
    let here: u64 = here.map(calls).sum();
    let iterations = *image.iterations.get(at.number)?;
    (here.saturating_mul(2) > all && iterations >= FEWEST_REPEATS).then_some(LoopRate {
        frame: at.frame(),
        iterations,
        calls: here,
    })
}

/// As text.
pub fn describe(image: &ImageFacts, finding: &Finding) -> Option<String> {
    let found = of_finding(image, finding)?;
    Some(format!(
        "{} calls an iteration of the loop in {} ({}): {} or more",
        ratio(found.calls, found.iterations),
        function_name(found.frame),
        frame_place(found.frame),
        counted(found.iterations, "iteration")
    ))
}
