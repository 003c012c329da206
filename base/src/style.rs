//! How texts look on a terminal; what writes them drops the colours elsewhere.

use anstyle::{AnsiColor, Style};

pub const HEADING: Style = Style::new().bold();
pub const FUNCTION: Style = AnsiColor::Cyan.on_default();
pub const WARNING: Style = AnsiColor::Yellow.on_default();
pub const FAINT: Style = Style::new().dimmed();
