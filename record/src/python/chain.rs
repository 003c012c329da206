//! The frames of one thread's Python code, from its innermost outward.
//!
//! Thread safety: a thread reads its own frames. The interpreter keeps them whole wherever it allocates, because
//! its own tracing of memory reads them there. Each frame holds its code. But a program may exchange the native stack
//! (greenlets), and the frames a moment before or after. So they are read only if the innermost evaluation is where the
//! native stack has it: the anchor, the record or the frame that the evaluating function keeps there. Where that is, is
//! found once for each native stack, with care.

use super::code::read_word;
use super::layout::{BYTES, Evaluation, KIND_OWN, KNOWN, Layout};
use crate::hash;

/// Outer frames beyond are left out.
const MAX_FRAMES: usize = 1 << 15;

/// A frame of Python code.
#[derive(Clone, Copy)]
pub struct PythonFrame {
    pub code: u64,
    /// In the layout's form.
    pub instruction: u64,
    /// The words that identify the instruction, and its code object among those at the same address.
    identity: [u64; 2],
}

impl PythonFrame {
    /// A hash of the frame, and of what `key` stands for.
    #[inline(always)]
    pub fn mix(&self, key: u64) -> u64 {
        let [place, function] = self.identity;
        hash::fold(place ^ key.rotate_left(21) ^ hash::FACTOR, function ^ key)
    }
}

/// The frames that one invocation of the evaluating function has, innermost first.
pub struct Evaluated {
    /// An address in that function's native frame.
    pub at: u64,
    pub frames: Vec<PythonFrame>,
}

/// # Safety
/// The address can be read.
#[inline(always)]
unsafe fn word(address: u64, offset: u32) -> u64 {
    // SAFETY: by contract.
    unsafe { ((address + u64::from(offset)) as *const u64).read_unaligned() }
}

/// Whether an address can be that of one of the interpreter's structures.
#[inline(always)]
pub fn is_plausible(address: u64) -> bool {
    const LOWEST: u64 = 1 << 12;
    const HIGHEST: u64 = 1 << 47;
    address.wrapping_sub(LOWEST) < HIGHEST - LOWEST && address & 7 == 0
}

/// Reads of a thread whose state was checked.
#[derive(Clone, Copy)]
pub struct Thread<'a> {
    layout: &'a Layout,
    state: u64,
}

impl<'a> Thread<'a> {
    /// # Safety
    /// It is the calling thread's state, and the layout is the interpreter's.
    pub unsafe fn new(layout: &'a Layout, state: u64) -> Self {
        Thread { layout, state }
    }

    #[inline(always)]
    fn innermost(&self) -> u64 {
        let layout = self.layout;
        // SAFETY: the contract of `new`.
        unsafe {
            match (layout.evaluation, layout.record) {
                (Evaluation::FrameEach, _) | (_, None) => word(self.state, layout.innermost),
                (_, Some(record)) => word(word(self.state, record), layout.record_innermost),
            }
        }
    }

    /// A hash of all frames, 0 if there is none; `None` if the innermost evaluation is not at `anchor`, which is where the
    /// native stack has it. For each layout there is a loop of its own, with constant offsets.
    #[inline]
    pub fn key(&self, anchor: u64) -> Option<u64> {
        match self.layout.minor {
            10 => self.by::<0>().hash(anchor),
            11 => self.by::<1>().hash(anchor),
            12 => self.by::<2>().hash(anchor),
            _ => self.by::<3>().hash(anchor),
        }
    }

    #[inline(always)]
    fn by<const INDEX: usize>(&self) -> Thread<'static> {
        Thread {
            layout: const { &KNOWN[INDEX] },
            state: self.state,
        }
    }

    #[inline(always)]
    fn hash(&self, anchor: u64) -> Option<u64> {
        /// A thread that evaluates nothing has its record in its state.
        const STATE_BYTES: u64 = 1024;
        let layout = self.layout;
        if let Some(record) = layout.record {
            // SAFETY: the contract of `new`.
            let record = unsafe { word(self.state, record) };
            if record != anchor {
                return (record.wrapping_sub(self.state) < STATE_BYTES).then_some(0);
            }
        }
        let mut is_at_anchor = layout.record.is_some();
        let mut frame = self.innermost();
        let mut key = 0;
        for _ in 0..MAX_FRAMES {
            if !is_plausible(frame) {
                break;
            }
            is_at_anchor |= frame == anchor;
            // SAFETY: a frame of the chain.
            unsafe {
                let kind = self.kind(frame);
                if layout.evaluation == Evaluation::OwnFrame && kind >= KIND_OWN {
                    if !is_at_anchor {
                        return None;
                    }
                    key = hash::fold(!key, hash::FACTOR);
                } else {
                    key = self.frame(frame).mix(key ^ u64::from(kind));
                }
                frame = word(frame, layout.outer);
            }
        }
        Some(key)
    }

    /// # Safety
    /// A frame of the chain.
    #[inline(always)]
    unsafe fn kind(&self, frame: u64) -> u8 {
        match self.layout.evaluation {
            Evaluation::FrameEach => 0,
            // SAFETY: by contract.
            _ => unsafe { ((frame + u64::from(self.layout.kind)) as *const u8).read() },
        }
    }

    /// # Safety
    /// A frame of the chain that evaluates Python code. It holds that code.
    #[inline(always)]
    unsafe fn frame(&self, frame: u64) -> PythonFrame {
        let layout = self.layout;
        // SAFETY: by contract.
        unsafe {
            let (code, instruction) = (word(frame, layout.code), word(frame, layout.instruction));
            let instruction = match layout.evaluation {
                // Its number, of 32 bits.
                Evaluation::FrameEach => instruction & u64::from(u32::MAX),
                _ => instruction,
            };
            let identity = match layout.version {
                Some(version) => [instruction, word(code, version) & u64::from(u32::MAX)],
                None => [instruction ^ code << 16, self.identity(code)],
            };
            PythonFrame {
                code,
                instruction,
                identity,
            }
        }
    }

    /// What differs between code objects at the same address, unless the second has the first one's text, too: file,
    /// name, first line, and the lines of the first instructions.
    ///
    /// # Safety
    /// A code object.
    #[inline(always)]
    unsafe fn identity(&self, code: u64) -> u64 {
        let layout = self.layout;
        // SAFETY: by contract. The table is an object of more than 32 bytes, and those are aligned to 16.
        unsafe {
            let line = word(code, layout.first_line) << 32;
            let names = word(code, layout.name) ^ word(code, layout.file).rotate_left(28);
            let table = word(code, layout.lines) + BYTES;
            let lines = word(table, 0) ^ word(table, 8).rotate_left(20);
            names ^ line ^ lines
        }
    }

    /// All frames by invocation, innermost first, and whether these are all.
    pub fn frames(&self) -> (Vec<Evaluated>, bool) {
        let layout = self.layout;
        let mut found = Vec::new();
        let mut frames = Vec::new();
        let mut frame = self.innermost();
        // SAFETY: the contract of `new`.
        let first = |offset| unsafe { word(self.state, offset) };
        let mut record = layout.record.map_or(0, first);
        for _ in 0..MAX_FRAMES {
            if !is_plausible(frame) {
                return (found, true);
            }
            // SAFETY: as in `key`; a record of the native stack, one for each marked frame.
            unsafe {
                let kind = self.kind(frame);
                let at = match layout.evaluation {
                    Evaluation::OwnFrame if kind >= KIND_OWN => Some(frame),
                    Evaluation::OwnFrame => None,
                    Evaluation::FramesUpToMark if kind == 0 => None,
                    _ => Some(record),
                };
                if at != Some(frame) {
                    frames.push(self.frame(frame));
                }
                if let Some(at) = at {
                    let frames = std::mem::take(&mut frames);
                    found.push(Evaluated { at, frames });
                    if layout.evaluation != Evaluation::OwnFrame && is_plausible(record) {
                        record = word(record, layout.record_outer);
                    }
                }
                frame = word(frame, layout.outer);
            }
        }
        (found, false)
    }

    /// The same without trust in anything: the anchor and the code objects of all frames. `None` if there are none, or
    /// not all can be read.
    pub fn checked(&self) -> Option<(u64, Vec<u64>)> {
        let layout = self.layout;
        let field = |at: u64, offset: u32| match is_plausible(at) {
            true => read_word(at + u64::from(offset)),
            false => None,
        };
        let mut record = match layout.record {
            Some(record) => field(self.state, record)?,
            None => 0,
        };
        let mut frame = match layout.evaluation {
            Evaluation::FrameEach => field(self.state, layout.innermost)?,
            _ if layout.record.is_none() => field(self.state, layout.innermost)?,
            _ => field(record, layout.record_innermost)?,
        };
        let mut anchor = layout.record.map(|_| record);
        let mut codes = Vec::new();
        for _ in 0..MAX_FRAMES {
            if frame == 0 {
                return anchor.filter(|_| !codes.is_empty()).zip(Some(codes));
            }
            let kind = field(frame, layout.kind & !7)?.to_ne_bytes()[layout.kind as usize & 7];
            let is_own = layout.evaluation == Evaluation::OwnFrame && kind >= KIND_OWN;
            if is_own {
                anchor = anchor.or(Some(frame));
            } else {
                codes.push(field(frame, layout.code)?);
            }
            let is_last = match layout.evaluation {
                Evaluation::FrameEach => true,
                Evaluation::FramesUpToMark => kind != 0,
                Evaluation::OwnFrame => false,
            };
            if is_last {
                record = field(record, layout.record_outer)?;
            }
            frame = field(frame, layout.outer)?;
        }
        None
    }
}
