//! Everything that reads a trace. `reading` merges its files and charges each call to a site, by
//! `symbols`; the other modules, one a command of the tool, print, draw, compare, convert or advise. It
//! examines no running process. It depends on `larder-base` and on the owners of the formats,
//! `larder-trace` and `larder-memdebug`. `larder-live` uses it to name and export stacks, `larder-lab`
//! to read traces and symbols, and the tool for its commands.

pub mod advise;
pub mod calls;
pub mod diff;
mod error;
pub mod export;
pub mod flamegraph;
pub mod html;
pub mod import;
pub mod memdebug;
pub mod of;
pub mod reading;
pub mod report;
pub mod symbols;
pub mod view;
