//! Standard output and standard error.

use std::fmt::Display;
use std::io::{self, Write as _};

use statestore_client::diagnostics::text::on_one_line;

/// The text of an error that ends the command.
pub(crate) type Error = String;

/// Writes to standard output.
pub(crate) fn write(text: &str) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| format!("standard output: {error}"))
}

/// Writes a line to standard error, if that is still open.
pub(crate) fn report(what: impl Display) {
    let line = on_one_line(&what.to_string());
    let _ = writeln!(io::stderr().lock(), "statestore-chaos: {line}");
}

/// Writes a line to standard output, if that is still open: a closed output does not change the exit
/// code.
pub(crate) fn print_line(line: impl Display) {
    let _ = write(&format!("{line}\n"));
}
