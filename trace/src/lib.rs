//! The trace format, for the recorder and the tool.
//!
//! A trace file has every call of the malloc family of one process image, with its stack, thread, time and
//! size. `docs/reference/trace-format.md` specifies the bytes.
//!
//! Dependencies point one way: `writer::ordered` → `reader`, `writer`, `pack` → `chunk` → `columns`, `codec`, `modules`, `process`, `symbols`, `lost` →
//! `layout`, `varint`, `call`, `fingerprint`, `attach`.
//! The recorder's part (`layout`, `codec`, `columns::split`, `modules`, `process`) does not allocate, panic
//! or take a lock, because it runs inside `malloc` of arbitrary programs. `writer`, `pack`, `symbols` and `lost`
//! allocate; of these the recorder uses `symbols` alone, on a heap of its own. The reading part treats a trace
//! as hostile input: it cannot cause a panic, or an allocation that the file's size does not bound.
//!
//! # Reading
//!
//! ```no_run
//! use larder_trace::{Action, Trace};
//!
//! let trace = Trace::open("larder-ls-42.trace/42-0.ltrace".as_ref())?;
//! println!("{:?}", trace.process().argv);
//! let mut events = trace.events();
//! while let Some(event) = events.next() {
//!     if let Action::Alloc { size, stack, .. } = event.action {
//!         for frame in events.stacks().frames(stack) {
//!             println!("{size} bytes at {:#x}", frame.address);
//!         }
//!     }
//! }
//! for damage in events.damage() {
//!     eprintln!("{damage}");
//! }
//! # Ok::<(), larder_trace::TraceError>(())
//! ```

pub mod attach;
pub mod call;
mod chunk;
pub mod codec;
pub mod columns;
pub mod error;
mod fingerprint;
pub mod layout;
pub mod lost;
pub mod modules;
mod pack;
pub mod process;
mod reader;
pub mod symbols;
pub mod varint;
pub mod writer;

pub use call::{AllocCall, Call, CopyCall, FreeCall, SystemCall};
pub use error::{Damage, DamageCause, TraceError};
pub use fingerprint::Fingerprint;
pub use layout::{ClockKind, EndState, Origin, StopReason};
pub use lost::Lost;
pub use modules::{Module, ModuleId};
pub use pack::pack;
pub use process::ProcessInfo;
pub use reader::{
    Action, Clock, Counted, Counter, Counters, Event, Events, Frame, FrameId, Losses, MarkId,
    Sampling, StackId, StackTable, Totals, Trace, trace_files,
};
pub use writer::drop_times;
