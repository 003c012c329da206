//! The recorder: interposes the malloc family of a running program and writes every call, with its
//! stack, thread, time and sizes, into a trace.
//!
//! It is preloaded into arbitrary programs, so its first rule is to do no harm: it takes no memory from
//! `malloc`, never panics into the program, does not change `errno`, and if it cannot continue, it stops
//! recording and notes that in the trace.
//!
//! Modules, each using only those behind it: `arenas`, `attached`, `dispatch` → `notes`, `duplicate`, `hooks`,
//! `operators`, `exec`, `filter` → `state` → `ask`, `cpu`, `stream` → `walk`, `intern`, `marks`, `chunk`,
//! `counters`, `contents` → `familiar`, `recent`, `rules` → `map` → `python` → `file`, `clock` → `redirect` →
//! `exports`, `real`, `config`, `fixed`, `blocks`, `stack`, `signals`, `table` → `memory`, `arch`, `sys`, `hash`.

#![cfg_attr(
    not(target_arch = "x86_64"),
    allow(dead_code, reason = "what `dispatch` uses")
)]

mod arch;
mod arenas;
mod ask;
mod attached;
mod blocks;
mod chunk;
mod clock;
mod config;
mod contents;
mod counters;
mod cpu;
#[cfg(target_arch = "x86_64")]
mod dispatch;
mod duplicate;
mod errno;
mod exec;
mod exports;
mod familiar;
mod file;
mod filter;
mod fixed;
mod hash;
mod hooks;
mod intern;
mod map;
mod marks;
mod memory;
mod notes;
mod operators;
mod python;
mod real;
mod recent;
mod redirect;
mod registers;
mod rules;
mod signals;
mod stack;
mod state;
mod stream;
mod sys;
mod table;
mod walk;

#[global_allocator]
static HEAP: memory::Heap = memory::Heap::new();

/// Starts the recording, also of a program that never allocates.
#[used]
#[cfg_attr(not(test), unsafe(link_section = ".init_array"))]
static CONSTRUCTOR: extern "C" fn() = {
    extern "C" fn constructor() {
        if attached::is_loaded_later() {
            // `attached` begins.
            return;
        }
        real::look_up();
        hooks::start();
        arenas::watch();
        cpu::begin_now();
        ask::watch_exit();
        if state::system_calls_are_dispatched() {
            arch::dispatch_system_calls();
        }
    }
    constructor
};

#[used]
#[cfg_attr(not(test), unsafe(link_section = ".fini_array"))]
static DESTRUCTOR: extern "C" fn() = {
    extern "C" fn destructor() {
        state::at_exit();
    }
    destructor
};
