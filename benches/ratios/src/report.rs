//! Where figures go: one line each to the output, progress to standard error.

use std::io::{self, Write};

use crate::race::{Contestant, Effort, race};

/// Collects the figures of a suite.
pub struct Report<'a> {
    effort: Effort,
    out: &'a mut dyn Write,
}

impl<'a> Report<'a> {
    /// Lines go to `out` as soon as they are known.
    pub fn new(effort: Effort, out: &'a mut dyn Write) -> Self {
        Self { effort, out }
    }

    /// Times `ours` and each of `peers` in turns and writes one line for each peer.
    ///
    /// # Errors
    /// Those of the output.
    pub fn race<'c>(
        &mut self,
        name: &str,
        ours: Contestant<'c>,
        peers: impl IntoIterator<Item = Contestant<'c>>,
    ) -> io::Result<()> {
        let mut contestants = vec![ours];
        contestants.extend(peers);
        eprintln!("{name} ({} contestants)", contestants.len());
        let figures = race(&mut contestants, self.effort);
        let Some((ours, theirs)) = figures.split_first() else { return Ok(()) };
        for (peer, figure) in contestants.iter().skip(1).zip(theirs) {
            self.line(name, *ours, peer.name, *figure)?;
        }
        Ok(())
    }

    /// Times one contestant that has no peer and writes its figure.
    ///
    /// # Errors
    /// Those of the output.
    pub fn time(&mut self, name: &str, contestant: Contestant<'_>) -> io::Result<()> {
        eprintln!("{name} (alone)");
        let figures = race(&mut [contestant], self.effort);
        figures.first().map_or(Ok(()), |figure| self.figure(name, *figure))
    }

    /// Whether this is a test of the suite, which need not be large.
    #[must_use]
    pub fn is_rehearsal(&self) -> bool {
        self.effort.is_rehearsal()
    }

    /// Writes `NAME FIGURE`.
    ///
    /// # Errors
    /// Those of the output.
    pub fn figure(&mut self, name: &str, figure: f64) -> io::Result<()> {
        writeln!(self.out, "{name:<36} {figure:>9.1}")?;
        self.out.flush()
    }

    /// Writes `NAME OURS PEER THEIRS RATIO`. Less is better of both figures, so more is better of the ratio.
    ///
    /// # Errors
    /// Those of the output.
    pub fn line(&mut self, name: &str, ours: f64, peer: &str, theirs: f64) -> io::Result<()> {
        let ratio = theirs / ours;
        writeln!(self.out, "{name:<36} {ours:>9.1} {peer:<14} {theirs:>9.1} {ratio:>8.2}")?;
        self.out.flush()
    }
}
