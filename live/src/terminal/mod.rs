//! What screens share: the terminal and the loop that waits for keys (`screen`), lists of rows (`list`), how these and
//! pages of text are drawn (`page`), heads of tables (`table`), and what is typed to select rows (`filter`). Nothing
//! here knows what is shown.

pub mod filter;
pub mod list;
pub mod page;
pub mod screen;
pub mod table;
