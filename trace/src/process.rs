//! The process chunk: the program and its arguments.
//!
//! Paths and arguments are bytes, like in the system.

use crate::layout::{EndState, FileHeader, Origin, StopReason};
use crate::varint::{Input, Out};

/// The process image that a file describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessInfo {
    pub pid: u32,
    pub ppid: u32,
    pub image: u32,
    pub origin: Origin,
    /// Nanoseconds since 1970, UTC.
    pub start_wall_ns: u64,
    /// ELF's `e_machine`.
    pub machine: u32,
    pub page_bytes: u32,
    /// The program file; empty if unknown.
    pub executable: Vec<u8>,
    pub argv: Vec<Vec<u8>>,
    pub end: EndState,
    pub stop: StopReason,
    /// The system's error number that made the recorder stop, or 0.
    pub stop_errno: i32,
}

/// The payload of a process chunk. Arguments beyond the room in `out` are left out; `None` if not
/// even the program's path fits.
pub fn encode<'a>(
    out: &mut [u8],
    executable: &[u8],
    argv: impl Iterator<Item = &'a [u8]>,
) -> Option<usize> {
    let mut sink = Out::new(out);
    sink.blob(executable);
    let mut len = sink.finish()?;
    for argument in argv {
        let Some(rest) = out.get_mut(len..) else {
            break;
        };
        let mut sink = Out::new(rest);
        sink.blob(argument);
        match sink.finish() {
            Some(more) => len += more,
            None => break,
        }
    }
    Some(len)
}

/// The program's path and its arguments.
pub fn decode(payload: &[u8]) -> Option<(Vec<u8>, Vec<Vec<u8>>)> {
    let mut input = Input::new(payload);
    let executable = input.blob()?.to_vec();
    let mut argv = Vec::new();
    while !input.is_empty() {
        argv.push(input.blob()?.to_vec());
    }
    Some((executable, argv))
}

impl ProcessInfo {
    pub(crate) fn from_header(header: &FileHeader) -> Self {
        ProcessInfo {
            pid: header.pid,
            ppid: header.ppid,
            image: header.image,
            origin: header.origin,
            start_wall_ns: header.start_wall_ns,
            machine: header.machine,
            page_bytes: header.page_bytes,
            executable: Vec::new(),
            argv: Vec::new(),
            end: EndState::Running,
            stop: StopReason::None,
            stop_errno: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_return_as_given() {
        let mut buffer = [0; 64];
        let argv: [&[u8]; 3] = [b"prog", b"", b"a \xff b"];
        let len = encode(&mut buffer, b"/bin/prog", argv.into_iter()).expect("fits");
        let (executable, back) = decode(&buffer[..len]).expect("whole");
        assert_eq!(executable, b"/bin/prog");
        assert_eq!(back, argv);
        assert_eq!(decode(&buffer[..len - 1]), None);
    }

    #[test]
    fn too_many_arguments_are_left_out_whole() {
        let mut buffer = [0; 16];
        let argv = [b"12345".as_slice(); 9];
        let len = encode(&mut buffer, b"p", argv.into_iter()).expect("fits");
        assert_eq!(decode(&buffer[..len]).expect("whole").1.len(), 2);
    }
}
