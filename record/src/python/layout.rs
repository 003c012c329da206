//! Where each minor version of CPython keeps what a stack needs. Within a minor version these places stay.
//!
//! A thread's state leads to its innermost frame; a frame leads to the one that called it, to its code, and to the
//! instruction in it. One C function evaluates frames, and calls itself again where C code calls Python. Where on
//! the native stack each of its invocations is follows from what it keeps there (`Evaluation`).

/// How frames are divided among the invocations of the evaluating function.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Evaluation {
    /// Each has one frame, and nothing on the native stack leads to it: the innermost has the innermost frame.
    FrameInOrder,
    /// Each has one frame, and a record on the native stack; the thread's state leads to the innermost record.
    FrameEach,
    /// Each has a record on the native stack, and its outermost frame is marked.
    FramesUpToMark,
    /// Each has a frame of its own on the native stack, outside of the frames that it evaluates.
    OwnFrame,
}

/// Offsets in bytes.
pub struct Layout {
    pub minor: u32,
    pub evaluation: Evaluation,
    /// In the thread's state.
    pub thread: u32,
    pub record: Option<u32>,
    pub innermost: u32,
    /// In the record, which leads to the innermost frame since 3.11.
    pub record_innermost: u32,
    pub record_outer: u32,
    /// In a frame.
    pub code: u32,
    pub outer: u32,
    pub instruction: u32,
    /// A byte that marks the outermost frame of an invocation, or says of what kind the frame is.
    pub kind: u32,
    /// In a code object.
    pub file: u32,
    pub name: u32,
    pub shown_name: u32,
    pub first_line: u32,
    pub lines: u32,
    pub instructions: u32,
    /// A number that no other code object gets, of 32 bits; since 3.12.
    pub version: Option<u32>,
    /// The characters of a text: all ASCII, and others.
    pub ascii: u32,
    pub characters: u32,
}

/// The kinds of frames from here on evaluate nothing.
pub const KIND_OWN: u8 = 3;
/// Bits of a reference to a code object that are none of its address; since 3.14.
pub const CODE_TAG: u64 = 7;
/// A thread's state has less; it holds the record of a thread that evaluates nothing, and since 3.15 the frame outside
/// of all others.
pub const STATE_BYTES: u64 = 1024;
/// In every object: its type. In those of variable size and in texts: the length.
pub const OBJECT_TYPE: u64 = 8;
pub const LENGTH: u64 = 16;
/// In a text: how its characters are kept.
pub const TEXT_STATE: u64 = 32;
/// In a bytes object.
pub const BYTES: u64 = 32;

const PYTHON_3_10: Layout = Layout {
    minor: 10,
    evaluation: Evaluation::FrameEach,
    thread: 176,
    record: Some(48),
    innermost: 24,
    record_innermost: 0,
    record_outer: 8,
    code: 32,
    outer: 24,
    instruction: 96,
    kind: 0,
    file: 104,
    name: 112,
    shown_name: 112,
    first_line: 40,
    lines: 120,
    instructions: 0,
    version: None,
    ascii: 48,
    characters: 72,
};

const PYTHON_3_12: Layout = Layout {
    minor: 12,
    evaluation: Evaluation::OwnFrame,
    thread: 136,
    record: Some(56),
    innermost: 0,
    record_innermost: 0,
    record_outer: 8,
    code: 0,
    outer: 8,
    instruction: 56,
    kind: 70,
    file: 112,
    name: 120,
    shown_name: 128,
    first_line: 68,
    lines: 136,
    instructions: 192,
    version: Some(92),
    ascii: 40,
    characters: 56,
};

const PYTHON_3_13: Layout = Layout {
    minor: 13,
    thread: 152,
    record: None,
    innermost: 72,
    record_outer: 0,
    instructions: 200,
    ..PYTHON_3_12
};

const PYTHON_3_14: Layout = Layout {
    minor: 14,
    kind: 74,
    instructions: 208,
    ..PYTHON_3_13
};

/// By version, from 3.9 on.
pub const KNOWN: [Layout; 7] = [
    Layout {
        minor: 9,
        evaluation: Evaluation::FrameInOrder,
        record: None,
        record_outer: 0,
        instruction: 104,
        ..PYTHON_3_10
    },
    PYTHON_3_10,
    Layout {
        minor: 11,
        evaluation: Evaluation::FramesUpToMark,
        thread: 152,
        record: Some(56),
        innermost: 0,
        record_innermost: 8,
        record_outer: 16,
        code: 32,
        outer: 48,
        instruction: 56,
        kind: 68,
        file: 112,
        name: 120,
        shown_name: 128,
        first_line: 72,
        lines: 136,
        instructions: 184,
        version: None,
        ascii: 48,
        characters: 72,
    },
    PYTHON_3_12,
    PYTHON_3_13,
    PYTHON_3_14,
    Layout {
        minor: 15,
        thread: 176,
        ..PYTHON_3_14
    },
];
