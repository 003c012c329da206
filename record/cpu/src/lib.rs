//! Wraps libc's functions for threads and signals, for the recorder. Only `larder record --cpu` preloads this
//! library: the recorder then samples each thread by a signal of its own.
//!
//! - A new thread first starts its timer, then jumps to the program's function.
//! - The program's masks never block the recorder's signal, and it never waits for it, like libc's own signals.
//! - Its handler for that signal, if it sets one, is kept by the recorder, which passes other signals of that
//!   number on.
//!
//! Thread safety: a function below is looked up once and stored in an atomic word. Invariant: without the
//! recorder, or if it does not sample, the wrappers only forward.

#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
mod arch;
mod below;
mod signals;
mod threads;

// Before the program starts, because `dlsym` is not async-signal-safe.
larder_wrap::constructor!(below::look_up);
