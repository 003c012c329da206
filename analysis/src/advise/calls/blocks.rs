//! Blocks that one copy filled, judged by what they held when they ended (`record --contents`): whether their
//! source lived on and was the same, and whether an earlier one had held the same text.
//!
//! Memory: 40 bytes a live block, 48 a live one that was filled, 16 for each of `MOST_TEXTS` texts of a stack.
//! Time: O(log live blocks) an allocation, free or copy.

use std::collections::{BTreeMap, HashMap, HashSet};

use larder_trace::{Action, Fingerprint, StackId};

use super::{Concluded, Conclusion, Figures, Pattern, Total};

/// Texts of a stack that are known again.
const MOST_TEXTS: usize = 1 << 12;
/// Longer ones are not names or keys.
const LONGEST_TEXT: u64 = 256;
/// A copy that leaves at most this part of a block as it was fills it, as for `Fingerprint::AS_COPIED`.
const SMALL_PART: u64 = 4;

#[derive(Clone, Copy)]
struct Block {
    end: u64,
    serial: u64,
    stack: StackId,
}

/// A block after a copy to its start.
struct Filled {
    stack: StackId,
    bytes: u64,
    /// The start and the serial number of the live block that the bytes came from.
    source: Option<(u64, u64)>,
    held: Option<Fingerprint>,
}

/// What one stack's copies have filled.
#[derive(Default)]
struct Copies {
    calls: u64,
    /// Those whose source lived on.
    outlived: Figures,
    /// The number of blocks, by the stack that allocated their sources.
    makers: BTreeMap<StackId, u64>,
    /// Those with the text of an earlier one.
    again: Figures,
    texts: HashSet<(u64, u64)>,
}

#[derive(Default)]
pub struct Blocks {
    /// By address, in order: a source may begin within its block.
    live: BTreeMap<u64, Block>,
    made: u64,
    filled: HashMap<u64, Filled>,
    copies: HashMap<StackId, Copies>,
}

impl Blocks {
    pub fn event(&mut self, action: &Action) {
        match *action {
            Action::Copy {
                call,
                destination,
                source,
                bytes,
                stack,
                rate: 0,
            } if bytes > 0 => {
                self.filled.remove(&destination);
                if !call.fills() && !call.formats() {
                    self.copies.entry(stack).or_default().calls += 1;
                    self.copied(destination, source, bytes, stack);
                }
            }
            Action::Contents {
                address,
                fingerprint,
            } => {
                if let Some(filled) = self.filled.get_mut(&address) {
                    filled.held = Some(fingerprint);
                }
            }
            Action::Alloc {
                address,
                size,
                stack,
                ..
            } if address != 0 => self.allocated(address, size, stack),
            Action::ReallocEnd {
                old,
                address,
                size,
                stack,
                ..
            } if address != 0 => {
                self.filled.remove(&old);
                match self.live.get_mut(&old) {
                    Some(block) if old == address => block.end = address.saturating_add(size),
                    _ => {
                        self.live.remove(&old);
                        self.allocated(address, size, stack);
                    }
                }
            }
            Action::Free { address, .. }
            | Action::ReallocEnd {
                old: address,
                address: 0,
                size: 0,
                ..
            } => {
                if let Some(filled) = self.filled.remove(&address) {
                    self.ended(address, &filled);
                }
                self.live.remove(&address);
            }
            _ => {}
        }
    }

    fn allocated(&mut self, address: u64, size: u64, stack: StackId) {
        self.filled.remove(&address);
        self.made += 1;
        let block = Block {
            end: address.saturating_add(size),
            serial: self.made,
            stack,
        };
        self.live.insert(address, block);
    }

    fn copied(&mut self, to: u64, from: u64, bytes: u64, stack: StackId) {
        let Some(block) = self.live.get(&to) else {
            return;
        };
        let size = block.end - to;
        if !(size - size / SMALL_PART..=size).contains(&bytes) {
            return;
        }
        let end = from.saturating_add(bytes);
        let source = self.live.range(..=from).next_back();
        let source =
            source.filter(|(_, source)| source.end >= end && source.serial != block.serial);
        let filled = Filled {
            stack,
            bytes,
            source: source.map(|(start, source)| (*start, source.serial)),
            held: None,
        };
        self.filled.insert(to, filled);
    }

    /// A block that was filled ends, or the image does.
    fn ended(&mut self, address: u64, filled: &Filled) {
        let (Some(held), Some(block)) = (filled.held, self.live.get(&address)) else {
            return;
        };
        let copies = self.copies.entry(filled.stack).or_default();
        let count = |figures: &mut Figures| {
            figures.calls += 1;
            figures.bytes = figures.bytes.saturating_add(filled.bytes);
        };
        let source = filled.source.and_then(|(start, serial)| {
            let source = self.live.get(&start)?;
            (source.serial == serial).then_some(source)
        });
        if let Some(source) = source.filter(|_| held.has(Fingerprint::AS_COPIED)) {
            count(&mut copies.outlived);
            *copies.makers.entry(source.stack).or_default() += 1;
        }
        let size = block.end - address;
        let is_text = size <= LONGEST_TEXT && held.has(Fingerprint::DENSE);
        let text = (held.hash, size);
        if is_text && copies.texts.contains(&text) {
            count(&mut copies.again);
        } else if is_text && copies.texts.len() < MOST_TEXTS {
            copies.texts.insert(text);
        }
    }

    pub fn conclude(mut self, concluded: &mut Concluded) {
        let live = BTreeMap::from_iter(std::mem::take(&mut self.filled));
        for (address, filled) in live {
            self.ended(address, &filled);
        }
        for (stack, copies) in self.copies {
            let maker = copies.makers.iter().max_by_key(|(_, blocks)| **blocks);
            let mut conclude = |pattern, figures: Figures, other| {
                concluded.totals.push(Total {
                    pattern,
                    stack,
                    of: copies.calls,
                    others: 0,
                });
                if figures.calls > 0 {
                    concluded.found.push(Conclusion {
                        pattern,
                        stack,
                        other,
                        format: None,
                        figures,
                    });
                }
            };
            let maker = maker.map(|(maker, _)| *maker);
            conclude(Pattern::SourceLivesOn, copies.outlived, maker);
            let again = Figures {
                runs: copies.texts.len() as u64,
                ..copies.again
            };
            conclude(Pattern::SameText, again, None);
        }
    }
}
