//! The frames of one thread's Python code, from its innermost outward.
//!
//! Thread safety: a thread reads its own frames. The interpreter keeps them whole wherever it allocates, because
//! its own tracing of memory reads them there. Each frame holds its code. But a program may exchange the native stack
//! (greenlets), and the frames a moment before or after. So they are read only if the innermost evaluation is where the
//! native stack has it: the anchor, the record or the frame that the evaluating function keeps there. Where that is, is
//! found once for each native stack, with care.

use super::code::{read, read_word};
use super::layout::{
    BYTES, CODE_TAG, Evaluation, KIND_OWN, KNOWN, Layout, OBJECT_TYPE, STATE_BYTES,
};
use crate::hash;

/// Outer frames beyond are left out.
const MAX_FRAMES: usize = 1 << 15;
/// The same in a sample of processor time, where each is read with care.
const MAX_SAMPLED_FRAMES: usize = 1 << 10;
/// No layout needs more of a frame, or of a record.
const FRAME_BYTES: u64 = 120;
const RECORD_BYTES: u64 = 24;

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
    /// An address in that function's native frame; 0: as many further in as its place here.
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
            9 => self.by::<0>().hash(anchor),
            10 => self.by::<1>().hash(anchor),
            11 => self.by::<2>().hash(anchor),
            12 => self.by::<3>().hash(anchor),
            13 => self.by::<4>().hash(anchor),
            14 => self.by::<5>().hash(anchor),
            _ => self.by::<6>().hash(anchor),
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
        let layout = self.layout;
        if let Some(record) = layout.record {
            // SAFETY: the contract of `new`.
            let record = unsafe { word(self.state, record) };
            if record != anchor {
                return self.is_in_state(record).then_some(0);
            }
        }
        let mut is_at_anchor = layout.evaluation != Evaluation::OwnFrame || layout.record.is_some();
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
                    if self.is_in_state(frame) {
                        break;
                    }
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

    #[inline(always)]
    fn is_in_state(&self, address: u64) -> bool {
        address.wrapping_sub(self.state) < STATE_BYTES
    }

    /// # Safety
    /// A frame of the chain.
    #[inline(always)]
    unsafe fn kind(&self, frame: u64) -> u8 {
        match self.layout.evaluation {
            Evaluation::FrameInOrder | Evaluation::FrameEach => 0,
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
            let code = word(frame, layout.code) & !CODE_TAG;
            let instruction = word(frame, layout.instruction);
            let instruction = match layout.evaluation {
                // Its number, of 32 bits.
                Evaluation::FrameInOrder | Evaluation::FrameEach => {
                    instruction & u64::from(u32::MAX)
                }
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

    /// All frames by invocation, innermost first, and whether these are all. `careful`, with the type of code objects:
    /// the thread may have been interrupted anywhere, so nothing is trusted, and there are none if one cannot be read.
    pub fn frames(&self, careful: Option<u64>) -> (Vec<Evaluated>, bool) {
        let layout = self.layout;
        let most = careful.map_or(MAX_FRAMES, |_| MAX_SAMPLED_FRAMES);
        let trusted = |address, bytes| {
            careful.is_none() || is_plausible(address) && read(address, bytes).is_some()
        };
        let mut record = 0;
        if let Some(offset) = layout.record {
            // SAFETY: the contract of `new`.
            record = unsafe { word(self.state, offset) };
            if !trusted(record, RECORD_BYTES) {
                return (Vec::new(), false);
            }
        }
        let mut found = Vec::new();
        let mut frames = Vec::new();
        let mut frame = self.innermost();
        for _ in 0..most {
            if !is_plausible(frame) || self.is_in_state(frame) {
                return (found, true);
            }
            if !trusted(frame, FRAME_BYTES) {
                return (Vec::new(), false);
            }
            // SAFETY: as in `key`, or just found readable; a record of the native stack, one for each marked frame.
            unsafe {
                let kind = self.kind(frame);
                let at = match layout.evaluation {
                    Evaluation::OwnFrame if kind >= KIND_OWN => Some(frame),
                    Evaluation::OwnFrame => None,
                    Evaluation::FramesUpToMark if kind == 0 => None,
                    _ => Some(record),
                };
                if at != Some(frame) {
                    if careful.is_some_and(|kind| !self.has_code(frame, kind)) {
                        return (Vec::new(), false);
                    }
                    frames.push(self.frame(frame));
                }
                if let Some(at) = at {
                    let frames = std::mem::take(&mut frames);
                    found.push(Evaluated { at, frames });
                    let has_outer = layout.evaluation != Evaluation::OwnFrame;
                    if has_outer && is_plausible(record) && trusted(record, RECORD_BYTES) {
                        record = word(record, layout.record_outer);
                    }
                }
                frame = word(frame, layout.outer);
            }
        }
        (found, false)
    }

    /// Whether a frame's code is an object of this type, with a table of lines.
    ///
    /// # Safety
    /// A frame can be read there.
    unsafe fn has_code(&self, frame: u64, code_type: u64) -> bool {
        let layout = self.layout;
        // SAFETY: by contract.
        let code = unsafe { word(frame, layout.code) } & !CODE_TAG;
        let field = |offset: u64| read_word(code.wrapping_add(offset));
        let table = || field(layout.lines.into()).filter(|table| is_plausible(*table));
        is_plausible(code)
            && field(OBJECT_TYPE) == Some(code_type)
            && table().is_some_and(|table| read(table, BYTES + 16).is_some())
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
        let mut frame = match (layout.evaluation, layout.record) {
            (Evaluation::FrameEach, _) | (_, None) => field(self.state, layout.innermost)?,
            _ => field(record, layout.record_innermost)?,
        };
        let is_in_order = layout.evaluation == Evaluation::FrameInOrder;
        let mut anchor = (is_in_order || layout.record.is_some()).then_some(record);
        let mut codes = Vec::new();
        for _ in 0..MAX_FRAMES {
            if frame == 0 || self.is_in_state(frame) {
                return anchor.filter(|_| !codes.is_empty()).zip(Some(codes));
            }
            let kind = field(frame, layout.kind & !7)?.to_ne_bytes()[layout.kind as usize & 7];
            let is_own = layout.evaluation == Evaluation::OwnFrame && kind >= KIND_OWN;
            if is_own {
                anchor = anchor.or(Some(frame));
            } else {
                codes.push(field(frame, layout.code)? & !CODE_TAG);
            }
            let is_last = match layout.evaluation {
                Evaluation::FrameEach => true,
                Evaluation::FramesUpToMark => kind != 0,
                Evaluation::FrameInOrder | Evaluation::OwnFrame => false,
            };
            if is_last {
                record = field(record, layout.record_outer)?;
            }
            frame = field(frame, layout.outer)?;
        }
        None
    }
}
