//! Progress of long operations, on a terminal.

use std::io::IsTerminal as _;

use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A progress line on standard error, if that is a terminal. Dropping this or a clone removes it.
#[derive(Clone)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Counts keys. A `total` of 0 means that the number is unknown.
    pub(crate) fn keys(what: &'static str, total: u64) -> Self {
        Self::new(what, "keys", total)
    }

    /// Counts cases.
    pub(crate) fn cases(what: &'static str, total: u64) -> Self {
        Self::new(what, "cases", total)
    }

    /// Counts checks.
    pub(crate) fn checks(what: &'static str, total: u64) -> Self {
        Self::new(what, "checks", total)
    }

    /// Counts bytes.
    pub(crate) fn bytes(what: &'static str, total: u64) -> Self {
        Self::new(what, "bytes", total)
    }

    /// Counts records, whose number is unknown.
    pub(crate) fn records(what: &'static str) -> Self {
        Self::new(what, "records", 0)
    }

    /// Hides the progress if other lines are printed on the terminal.
    pub(crate) fn unless_printed(self, is_printed: bool) -> Self {
        if is_printed && std::io::stdout().is_terminal() {
            self.0.set_draw_target(ProgressDrawTarget::hidden());
        }
        self
    }

    fn new(what: &'static str, unit: &str, total: u64) -> Self {
        let bar = if total == 0 { ProgressBar::no_length() } else { ProgressBar::new(total) };
        let template = match total {
            0 => format!("{{spinner}} {{msg}}: {{human_pos}} {unit}"),
            _ => format!("{{msg}} {{bar:30}} {{human_pos}} of {{human_len}} {unit}"),
        };
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style);
        }
        bar.set_message(what);
        Self(bar)
    }

    pub(crate) fn advance(&self, by: usize) {
        self.0.inc(u64::try_from(by).unwrap_or(u64::MAX));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Formats a number of bytes with a unit.
pub(crate) fn bytes(bytes: u64) -> String {
    HumanBytes(bytes).to_string()
}
