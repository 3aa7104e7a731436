//! A document in its file.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::block::{Block, Step, blocks};

/// A document of the workspace, and what becomes of it when its output is brought up to date.
#[derive(Debug)]
pub struct Document {
    path: PathBuf,
    lines: Vec<String>,
    /// How many lines it has more than when it was read.
    grown: isize,
}

impl Document {
    /// Reads a document by its path below the workspace's folder.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = Path::new(crate::WORKSPACE).join(path);
        let text = fs::read_to_string(&path)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        Ok(Self { path, lines: text.lines().map(str::to_owned).collect(), grown: 0 })
    }

    /// Its blocks of commands, as it is now.
    #[must_use]
    pub fn blocks(&self) -> Vec<Block> {
        blocks(&self.lines.join("\n"))
    }

    /// Puts other output below a command and writes the file. The steps are those of one call of [`Self::blocks`], and
    /// changed in order.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn show(&mut self, step: &Step, output: &[String]) -> io::Result<()> {
        self.replace(step, output);
        let text: String = self.lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
        fs::write(&self.path, text)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", self.path.display())))
    }

    fn replace(&mut self, step: &Step, output: &[String]) {
        let length = self.lines.len();
        let start = (step.below - 1).saturating_add_signed(self.grown).min(length);
        let end = (start + step.shown.len()).min(length);
        let new = output.iter().map(|line| format!("{}{line}", step.indent).trim_end().to_owned());
        self.lines.splice(start..end, new);
        self.grown += self.lines.len().cast_signed() - length.cast_signed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(text: &str) -> Document {
        Document { path: PathBuf::new(), lines: text.lines().map(str::to_owned).collect(), grown: 0 }
    }

    #[test]
    fn output_is_replaced_where_it_stands() {
        let mut document =
            document("    $ a \\\n      b\n    1\n    2\n    $ c\n    3\n\nend\n```console\n$ d\n4\n```");
        let blocks = document.blocks();
        let steps: Vec<_> = blocks.iter().flat_map(|block| &block.steps).collect();
        let lines = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
        document.replace(steps[0], &lines(&["x"]));
        document.replace(steps[1], &lines(&["y", "", "z"]));
        document.replace(steps[2], &[]);
        let text = document.lines.join("\n");
        assert_eq!(text, "    $ a \\\n      b\n    x\n    $ c\n    y\n\n    z\n\nend\n```console\n$ d\n```");
    }

    #[test]
    fn a_document_that_is_not_there_is_named() {
        let error = Document::read("docs/no-such.md").unwrap_err().to_string();
        assert!(error.contains("docs/no-such.md"), "{error}");
    }
}
