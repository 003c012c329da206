//! Everything that reads a trace: `reading` merges its files and charges each call to a site by
//! `symbols`; the others print, draw, compare, advise on or convert what comes of it, a module a command
//! of the tool. It knows no running process; it depends on `larder-base` and on the crates that own the
//! formats, `larder-trace` and `larder-memdebug`. `larder-live` names and exports its stacks by it,
//! `larder-lab` reads traces and symbols, and the tool offers its commands.

pub mod advise;
pub mod diff;
pub mod export;
pub mod flamegraph;
pub mod html;
pub mod import;
pub mod memdebug;
pub mod reading;
pub mod report;
pub mod symbols;
pub mod view;
