//! Reads running processes: `process` walks a heap from outside; `profile`, `leaks`, `stats`, `top` and
//! `serve` are the tool's commands that show what it finds, and `view` shows a trace on a screen like `top`'s, of the
//! parts in `terminal`; `traced` stops a command's processes at their end. Depends on `larder-analysis`, which reads
//! traces, names stacks and exports them, and on `larder-base`.

pub mod leaks;
pub mod process;
pub mod profile;
pub mod serve;
pub mod stats;
pub mod top;
pub mod view;

mod error;
mod ptrace;
mod terminal;
mod traced;
