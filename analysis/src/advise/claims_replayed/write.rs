//! A program as a trace file, with the names of its frames.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;

use larder_trace::symbols::Function;
use larder_trace::writer::{About, Class, Stack, Writer, WrittenCall};
use larder_trace::{AllocCall, FreeCall};

use super::program::{Action, Call, FUNCTIONS, PlaceId, Program};

const MODULE: u64 = 1 << 36;

fn address_of(place: PlaceId) -> u64 {
    MODULE + 2 * place as u64 + 1
}

pub fn place_of(address: u64) -> PlaceId {
    ((address - MODULE) / 2) as PlaceId
}

pub fn write(program: &Program, path: &Path) -> io::Result<()> {
    let about = About {
        pid: 1,
        executable: b"/nowhere/program",
        argv: &[],
        start_wall_ns: 0,
    };
    let mut writer = Writer::new(BufWriter::new(File::create(path)?), &about)?;
    let module = writer.module(b"/nowhere/program", &[], MODULE, 2 * MODULE)?;
    for (number, place) in program.places.iter().enumerate() {
        let functions = place.iter().map(|(function, line)| Function {
            name: FUNCTIONS[*function].as_bytes(),
            file: b"/nowhere/program.c",
            line: *line,
        });
        let functions: Vec<Function<'_>> = functions.collect();
        writer.symbols(module, address_of(number) - 1, &functions)?;
    }
    for (number, call) in program.calls.iter().enumerate() {
        let time = number as u64 + 1;
        writer.thread(call.thread, time)?;
        let stack = call.stack.iter().fold(Stack::EMPTY, |parent, place| {
            writer.stack(parent, address_of(*place))
        });
        if let (Some(held), Action::End { address }) = (call.held, call.action) {
            writer.contents(time, address, held)?;
        }
        writer.call(&written(call, stack, time))?;
    }
    let end = program.calls.len() as u64 + 1;
    for (address, held) in &program.left {
        writer.contents(end, *address, *held)?;
    }
    if let Some(look) = &program.look {
        writer.lost(look.calls as u64, &look.lost)?;
    }
    writer.finish()?;
    Ok(())
}

fn written(call: &Call, stack: Stack, time: u64) -> WrittenCall {
    use larder_trace::Call as Name;
    let (call, class, address, size, old) = match call.action {
        Action::Make {
            call,
            address,
            size,
        } => (Name::Alloc(call), Class::Alloc, address, size, 0),
        Action::End { address } => (Name::Free(FreeCall::Free), Class::Free, address, 0, 0),
        Action::Resize { old, address, size } => {
            let name = Name::Alloc(AllocCall::Realloc);
            (name, Class::Realloc, address, size, old)
        }
    };
    WrittenCall {
        call,
        class,
        stack,
        time,
        address,
        size,
        extra: u64::from(call == Name::Alloc(AllocCall::Calloc)),
        old,
    }
}
