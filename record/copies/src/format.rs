//! The printf family. A wrapper with `...` stores its argument registers and makes a `va_list` of them, as a
//! compiler does, and calls the form with a `va_list` below.

use larder_trace::CopyCall;

use crate::arch::{Registers, format_wrapper};
use crate::below::{self, Below};
use crate::note::{Caller, Copy, note};

type Function = unsafe extern "C-unwind" fn(usize, usize, usize, usize, usize, usize) -> isize;

/// Where the text goes.
#[derive(Clone, Copy)]
enum To {
    /// A stream or descriptor.
    Outside,
    /// The memory that the first argument points at.
    Memory,
    /// A new block, whose address is stored where the first argument points.
    Block,
}

/// A function: its code, the form below, the number of the format's argument, which is the last before the
/// values, and whether these come as `...`.
struct Form {
    call: CopyCall,
    below: Below,
    format: u8,
    variadic: bool,
    to: To,
}

impl Form {
    /// Whether the second argument is the room in memory.
    fn is_limited(&self) -> bool {
        matches!(self.call, CopyCall::Snprintf | CopyCall::Vsnprintf)
    }
}

/// Calls the form below and notes how many bytes it made.
unsafe extern "C-unwind" fn formatted(
    form: usize,
    registers: *mut Registers,
    sp: usize,
    bp: usize,
) -> isize {
    let form = &FORMS[form];
    // SAFETY: the wrapper's frame.
    let registers = unsafe { &mut *registers };
    let format = usize::from(form.format);
    let mut arguments = registers.arguments();
    if form.variadic {
        // What `va_arg` reads comes after the format, so the word behind it can be passed anew.
        arguments[format + 1] = std::ptr::from_mut(registers.list_after(format)) as usize;
    }
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the function below has these arguments.
    let result =
        unsafe { std::mem::transmute::<usize, Function>(below::get(form.below))(a, b, c, d, e, f) };
    // The upper half of an int's register is undefined.
    let result = result as i32 as isize;
    if result > 0 {
        let destination = match form.to {
            To::Outside => 0,
            // What was cut off is nowhere.
            To::Memory if form.is_limited() && result as usize >= b => 0,
            To::Memory => a,
            // SAFETY: the function below has stored it.
            To::Block => unsafe { *(a as *const usize) },
        };
        let copy = Copy {
            code: form.call.code(),
            destination,
            source: arguments[format],
            bytes: result as usize,
        };
        note(&copy, Caller { sp, bp });
    }
    result
}

macro_rules! forms {
    ($($number:literal $name:literal $call:ident $below:ident $format:literal $variadic:literal $to:ident;)*) => {
        static FORMS: &[Form] = &[$(Form {
            call: CopyCall::$call,
            below: Below::$below,
            format: $format,
            variadic: $variadic,
            to: To::$to,
        }),*];
        $(format_wrapper!($number, $name);)*
    };
}

forms! {
    0 "printf" Printf VPRINTF 0 true Outside;
    1 "__printf_chk" Printf VPRINTF_CHK 1 true Outside;
    2 "fprintf" Fprintf VFPRINTF 1 true Outside;
    3 "__fprintf_chk" Fprintf VFPRINTF_CHK 2 true Outside;
    4 "dprintf" Dprintf VDPRINTF 1 true Outside;
    5 "__dprintf_chk" Dprintf VDPRINTF_CHK 2 true Outside;
    6 "sprintf" Sprintf VSPRINTF 1 true Memory;
    7 "__sprintf_chk" Sprintf VSPRINTF_CHK 3 true Memory;
    8 "snprintf" Snprintf VSNPRINTF 2 true Memory;
    9 "__snprintf_chk" Snprintf VSNPRINTF_CHK 4 true Memory;
    10 "asprintf" Asprintf VASPRINTF 1 true Block;
    11 "__asprintf" Asprintf VASPRINTF 1 true Block;
    12 "__asprintf_chk" Asprintf VASPRINTF_CHK 2 true Block;
    13 "vprintf" Vprintf VPRINTF 0 false Outside;
    14 "__vprintf_chk" Vprintf VPRINTF_CHK 1 false Outside;
    15 "vfprintf" Vfprintf VFPRINTF 1 false Outside;
    16 "__vfprintf_chk" Vfprintf VFPRINTF_CHK 2 false Outside;
    17 "vdprintf" Vdprintf VDPRINTF 1 false Outside;
    18 "__vdprintf_chk" Vdprintf VDPRINTF_CHK 2 false Outside;
    19 "vsprintf" Vsprintf VSPRINTF 1 false Memory;
    20 "__vsprintf_chk" Vsprintf VSPRINTF_CHK 3 false Memory;
    21 "vsnprintf" Vsnprintf VSNPRINTF 2 false Memory;
    22 "__vsnprintf" Vsnprintf VSNPRINTF 2 false Memory;
    23 "__vsnprintf_chk" Vsnprintf VSNPRINTF_CHK 4 false Memory;
    24 "vasprintf" Vasprintf VASPRINTF 1 false Block;
    25 "__vasprintf_chk" Vasprintf VASPRINTF_CHK 2 false Block;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_takes_no_more_arguments_than_registers() {
        for form in FORMS {
            assert!(form.format < 5, "{}", form.call.name());
            assert!(form.call.formats());
        }
    }
}
