//! How far long work has got, on a terminal.

use std::io::IsTerminal as _;

use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A line on standard error, where that is a terminal; gone when this or a clone is dropped.
#[derive(Clone)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Counts what is of a known size; with 0 of an unknown one.
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

    /// Of records, whose number nobody knows.
    pub(crate) fn records(what: &'static str) -> Self {
        Self::new(what, "records", 0)
    }

    /// None, where lines of other things go to a terminal.
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

/// Bytes as people read them.
pub(crate) fn bytes(bytes: u64) -> String {
    HumanBytes(bytes).to_string()
}
