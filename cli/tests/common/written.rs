//! A trace whose copies and samples are known, because it is written here.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use larder_trace::symbols::Function;
use larder_trace::writer::{About, Class, Stack, Writer, WrittenCall};
use larder_trace::{AllocCall, Call, CopyCall};

const MODULE: u64 = 1 << 36;

/// Of the functions `main`, `first` and `second`, each with two lines.
pub struct Written {
    writer: Writer<BufWriter<File>>,
    time: u64,
    path: PathBuf,
}

impl Written {
    pub fn new(directory: &Path, name: &str) -> Self {
        let path = directory.join(format!("{name}.ltrace"));
        let file = BufWriter::new(File::create_new(&path).expect("a new file"));
        let about = About {
            pid: 1,
            executable: b"/nowhere/program",
            argv: &[],
            start_wall_ns: 0,
        };
        let mut writer = Writer::new(file, &about).expect("a trace");
        let module = writer.module(b"/nowhere/program", &[], MODULE, 2 * MODULE);
        let module = module.expect("a module");
        for (number, name) in ["main", "first", "second"].iter().enumerate() {
            // Two lines of each.
            for line in 0..2 {
                let function = Function {
                    name: name.as_bytes(),
                    file: b"/nowhere/program.c",
                    line: 10 * number as u32 + line as u32,
                };
                let address = MODULE + 100 * number as u64 + 2 * line;
                writer
                    .symbols(module, address, &[function])
                    .expect("a symbol");
            }
        }
        writer.thread(1, 1).expect("a thread");
        let time = 1;
        Self { writer, time, path }
    }

    fn stack(&mut self, function: u64, line: u64) -> Stack {
        let main = self.writer.stack(Stack::EMPTY, MODULE + 1);
        self.time += 1;
        self.writer
            .stack(main, MODULE + 100 * function + 2 * line + 1)
    }

    /// Of a millisecond each, in both lines of the function in turn.
    pub fn samples(mut self, function: u64, count: u64) -> Self {
        for number in 0..count {
            let stack = self.stack(function, number % 2);
            let written = self.writer.sample(stack, self.time, 1_000_000);
            written.expect("written");
        }
        self
    }

    fn calls(mut self, function: u64, count: u64, call: Call, class: Class, extra: u64) -> Self {
        for number in 0..count {
            let stack = self.stack(function, 0);
            let call = WrittenCall {
                call,
                class,
                stack,
                time: self.time,
                address: (function << 32) + 128 * number,
                size: 100,
                extra,
                old: 64,
            };
            self.writer.call(&call).expect("written");
        }
        self
    }

    pub fn allocations(self, count: u64) -> Self {
        self.allocations_of(1, count)
    }

    /// Of 100 bytes each.
    pub fn allocations_of(self, function: u64, count: u64) -> Self {
        let call = Call::Alloc(AllocCall::Malloc);
        self.calls(function, count, call, Class::Alloc, 0)
    }

    pub fn copies(self, function: u64, count: u64, rate: u64) -> Self {
        let call = Call::Copy(CopyCall::Memcpy);
        self.calls(function, count, call, Class::Copy, rate)
    }

    pub fn done(self) -> PathBuf {
        self.writer.finish().expect("written");
        self.path
    }
}
