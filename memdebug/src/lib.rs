//! The log that a debug build of curl writes about its memory (`CURL_MEMDEBUG=FILE`), both ways:
//! `line` owns the syntax of a line, read and written; `lines` cuts a stream into lines; `analyser`
//! counts and finds faults as curl's own analyser does.
//!
//! A log is hostile input: nothing in it causes a panic, and memory is bounded by a line's length
//! and by what is distinct in the log (addresses, source lines), never by the number of lines.
//! One thread.

#![forbid(unsafe_code)]

pub mod analyser;
pub mod line;
pub mod lines;

pub use analyser::{Analyser, Counters, Message, Style};
pub use line::{Call, Line, Unrecognised};
pub use lines::{Lines, RawLine};
