//! Threads that start: the new thread begins in the recorder, which jumps to the program's function. No frame
//! of a wrapper stays on a stack.

use crate::below::{self, Pair};

pub extern "C" fn prepare(function: usize, argument: usize, number: usize) -> Pair {
    below::address(number);
    below::thread(function, argument)
}
