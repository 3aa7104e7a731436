//! Commands that documents show, and what they print: read, held against what is printed now, and brought up to date.
//!
//! Commands are in indented blocks and in fenced ones of `console`; other fences are no commands. In a block
//!
//! * a line that begins with `$ ` is a command, and what follows is its output; without it each line is a command;
//! * a `\` at the end of a line lets the command go on;
//! * a blank line ends an indented block, and is part of the output in a fenced one.
//!
//! In output `…` stands for any text, and alone in a line for any lines. Columns may be wider or narrower. GPUs may have
//! other numbers, but the same one stays the same.
//!
//! Three tests see that nothing goes unheld: that of the mock driver follows the sections of [`EMBEDDED`], the end-to-end
//! suite `demos` what needs a cluster, and one in `e2e` fails for a block that neither of them follows.

mod block;
mod document;
mod shown;
mod workspace;

pub use block::{Block, Step, blocks};
pub use document::Document;
pub use shown::{Gpus, matches, refreshed};
pub use workspace::{WORKSPACE, documents};

/// Sections, by document and heading, whose commands need no cluster: all are `cargo run -p mock-gpu-driver -- …`.
pub const EMBEDDED: [(&str, &str); 2] =
    [("README.md", "See it work"), ("docs/getting-started.md", "In one program")];
