//! How the tool and the recorder that it has loaded into a running program talk: the tool calls a function of the
//! recorder's, and gets a number.

/// `int attach(const char *folder)`: begins to record into a trace directory. Returns 0, the error number of making
/// the trace file, or one of the answers below.
pub const ATTACH: &str = "larder_record_attach";
/// `int detach(void)`: ends the recording. Returns 0 or an answer.
pub const DETACH: &str = "larder_record_detach";

/// The thread that makes the call is in the recorder: another moment is needed.
pub const BUSY: i32 = -1;
/// The recorder was preloaded, or records already; to `detach`: it does not record by `attach`.
pub const TAKEN: i32 = -2;
/// The recorder cannot record this program: it is privileged, or has no memory left.
pub const UNFIT: i32 = -3;
