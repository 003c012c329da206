//! `larder view`: a trace on a screen that looks and behaves like that of `larder top`.
//!
//! ```text
//! trace ─> model ─────────────────────┬─> explorer ─> draw <─ keys, mouse
//!      └─> findings (a thread) ───────┤
//!          branches (an open tree) ───┘
//! ```
//!
//! Only `model` and `findings` read the trace; the terminal is that of `crate::terminal`.

mod args;
mod branches;
mod columns;
mod draw;
mod explorer;
mod findings;
mod model;

pub use args::{EXAMPLES, RawView, ViewPlan};

use larder_base::failure::Result;

use crate::error::LiveError;
use crate::terminal::screen;
use explorer::Explorer;
use model::Model;

pub fn view(plan: ViewPlan) -> Result<()> {
    if !screen::is_there() {
        let refusal = "view: stdout is no terminal that can draw: use larder report or larder html";
        return Err(LiveError::Usage(refusal).into());
    }
    let model = Model::read(&plan.subject)?;
    let mut explorer = Explorer::new(plan, model);
    let shown = screen::run(&mut explorer, "use larder report");
    // The process ends: freeing a block for each stack would take a tenth of the whole time.
    std::mem::forget(explorer);
    shown
}
