//! Shared by all of the tool's crates: failures and their exit codes, atomic output files, names made safe
//! to print, finding and starting a command, Larder's own files on this machine, and the numbers,
//! statistics and drawings of the reports. It depends on no other crate of Larder.

pub mod cache;
pub mod command_line;
pub mod error;
pub mod execute;
pub mod failure;
pub mod format;
pub mod installed;
pub mod libraries;
pub mod machine;
pub mod measured;
pub mod number;
pub mod order;
pub mod output;
pub mod path;
pub mod preload;
pub mod printable;
pub mod regular;
pub mod statistics;
pub mod style;
pub mod svg;
pub mod target;
