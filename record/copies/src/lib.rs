//! Wraps libc's functions that copy, fill and format memory, for the recorder. Only `larder record --copies`
//! preloads this library, so that without the option `memcpy` is not redirected.
//!
//! ```text
//! memory   memcpy and its like: the number of bytes is an argument. Counts down and jumps to the function below
//! text     strcpy and its like: the number of bytes is found while copying
//! format   the printf family: the number of bytes is the result
//!    └─> note ─> sample ─> larder_record_copy (liblarder_record.so)
//! ```
//!
//! Thread safety: a function below is looked up once and stored in an atomic word; what sampling counts is the
//! thread's own. Invariants: the results and `errno` are those of the functions below; without the recorder in
//! the process the wrappers only forward. Until the library's constructor has run, nothing is recorded, and
//! `memory` does the work itself, because the loader may call it before it has relocated libc.

#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
mod arch;
mod below;
mod format;
mod memory;
mod note;
mod sample;
mod text;

// Before the program starts, because `dlsym` is not async-signal-safe.
larder_wrap::constructor!(below::look_up);
