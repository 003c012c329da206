//! The file in which the preloaded library reports what it did. The tool makes it, and reads it when a
//! run is over.
//!
//! The program maps it, too, and may write anything there: every number is checked, and a path is only
//! opened for reading.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use larder_trace::AllocCall;
use tempfile::NamedTempFile;

use super::layout::{
    FILE_BYTES, HEADER_BYTES, MAGIC, MAX_FRAMES, SLOT_BYTES, SLOTS, Slot, TEXT_BYTES,
};

/// Slots with disk space reserved before the run: on a full disk a store into the mapping would kill the
/// program.
const RESERVED_SLOTS: usize = 32;

/// The file of one run: processes that a run leaves behind may write to it for ever.
pub struct Log(NamedTempFile);

/// What became of one process image.
#[derive(Clone, Debug)]
pub struct ImageLog {
    pub calls: u64,
    /// The first call that was made to fail.
    pub failed: Option<FailedCall>,
}

#[derive(Clone, Debug)]
pub struct FailedCall {
    /// From 1.
    pub number: u64,
    pub call: &'static str,
    /// The requested size in bytes.
    pub size: u64,
    /// Innermost first: the module's path and the return address in it.
    pub frames: Vec<(Vec<u8>, u64)>,
}

impl Log {
    pub fn new() -> io::Result<Log> {
        let log = tempfile::Builder::new().prefix("larder-fail-").tempfile()?;
        log.as_file().set_len(FILE_BYTES as u64)?;
        let flags = rustix::fs::FallocateFlags::empty();
        let bytes = (HEADER_BYTES + RESERVED_SLOTS * SLOT_BYTES) as u64;
        match rustix::fs::fallocate(log.as_file(), flags, 0, bytes) {
            Err(error) if error != rustix::io::Errno::OPNOTSUPP => return Err(error.into()),
            _ => {}
        }
        log.as_file().write_all_at(&MAGIC.to_ne_bytes(), 0)?;
        Ok(Log(log))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The images in the order in which they started.
    pub fn read(&self) -> io::Result<Vec<ImageLog>> {
        let file = self.0.as_file();
        let mut images = [0; 4];
        file.read_exact_at(&mut images, 8)?;
        let images = (u32::from_ne_bytes(images) as usize).min(SLOTS);
        (0..images).map(|number| read_slot(file, number)).collect()
    }
}

fn read_slot(file: &File, number: usize) -> io::Result<ImageLog> {
    let mut slot = vec![0; SLOT_BYTES];
    file.read_exact_at(&mut slot, (HEADER_BYTES + number * SLOT_BYTES) as u64)?;
    let word = |offset: usize| {
        let bytes = slot.get(offset..offset + 4).and_then(|b| b.try_into().ok());
        u32::from_ne_bytes(bytes.unwrap_or_default())
    };
    let long = |offset: usize| {
        let bytes = slot.get(offset..offset + 8).and_then(|b| b.try_into().ok());
        u64::from_ne_bytes(bytes.unwrap_or_default())
    };
    let described = word(std::mem::offset_of!(Slot, described)) == 1;
    let code = u8::try_from(word(std::mem::offset_of!(Slot, call)));
    let call = code.ok().and_then(AllocCall::from_code);
    let text_bytes = word(std::mem::offset_of!(Slot, text_bytes)) as usize;
    let start = std::mem::offset_of!(Slot, text);
    let text = &slot[start..start + text_bytes.min(TEXT_BYTES)];
    let failed = long(std::mem::offset_of!(Slot, failed)) > 0;
    Ok(ImageLog {
        calls: long(std::mem::offset_of!(Slot, calls)),
        failed: failed.then(|| FailedCall {
            number: long(std::mem::offset_of!(Slot, number)),
            call: call.filter(|_| described).map_or("a call", AllocCall::name),
            size: long(std::mem::offset_of!(Slot, size)),
            frames: if described { frames(text) } else { Vec::new() },
        }),
    })
}

fn frames(text: &[u8]) -> Vec<(Vec<u8>, u64)> {
    let lines = text.split(|byte| *byte == b'\n');
    let frames = lines.filter_map(|line| {
        let space = line.iter().position(|byte| *byte == b' ')?;
        let digits = std::str::from_utf8(&line[..space]).ok()?;
        let address = u64::from_str_radix(digits, 16).ok()?;
        Some((line[space + 1..].to_vec(), address))
    });
    frames.take(MAX_FRAMES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_log_has_no_images() {
        let log = Log::new().unwrap();
        assert_eq!(log.read().unwrap().len(), 0);
        assert_eq!(log.0.as_file().metadata().unwrap().len(), FILE_BYTES as u64);
    }

    #[test]
    fn nonsense_in_the_log_is_read_without_harm() {
        let log = Log::new().unwrap();
        let file = log.0.as_file();
        file.write_all_at(&u32::MAX.to_ne_bytes(), 8).unwrap();
        file.write_all_at(&[0xff; 2 * SLOT_BYTES], HEADER_BYTES as u64)
            .unwrap();
        let images = log.read().unwrap();
        assert_eq!(images.len(), SLOTS);
        let failed = images[0].failed.as_ref().unwrap();
        assert_eq!((failed.call, failed.frames.len()), ("a call", 0));
        assert!(images[2].failed.is_none());
    }

    #[test]
    fn frames_are_lines_and_what_is_none_is_left_out() {
        let text = b"1f /bin/a b\nzz /bin/c\n\n20\n2a ?\n1ffffffffffffffff /x\n";
        let expected = [(b"/bin/a b".to_vec(), 0x1f), (b"?".to_vec(), 0x2a)];
        assert_eq!(frames(text), expected);
        assert_eq!(frames(&b"1 /x\n".repeat(1000)).len(), MAX_FRAMES);
    }
}
