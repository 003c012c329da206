//! Reads and writes the memory log of a debug build of curl (`CURL_MEMDEBUG=FILE`): `line` parses and
//! writes a line; `lines` cuts a stream into lines; `analyser` counts, and finds errors, like curl's own
//! analyser.
//!
//! A log is hostile input: it cannot cause a panic, and memory is bounded by a line's length and by the
//! distinct addresses and source lines, not by the number of lines. One thread.

#![forbid(unsafe_code)]

pub mod analyser;
pub mod line;
pub mod lines;

pub use analyser::{Analyser, Counters, Message, Style};
pub use line::{Call, Line, Unrecognised};
pub use lines::{Lines, RawLine};
