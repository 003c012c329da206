//! The recorder: interposes the malloc family of a running program.
