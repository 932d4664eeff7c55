//! Printing of results: one table for each suite. Progress goes to standard error.
//!
//! As text, a table has one line for each comparison, printed as soon as it is measured:
//!
//! ```text
//! NAME OURS PEER THEIRS RATIO Q1 Q3
//! NAME FIGURE
//! ```
//!
//! OURS and THEIRS are medians over all rounds; less is better. Each round has a ratio, its time of
//! the peer divided by ours. RATIO is the median of these ratios; more is better. Q1 and Q3 are
//! their quartiles. On a machine that slows down during a run, RATIO is more exact than the
//! quotient of the medians. The second form is a figure without a peer. Lines that begin with `#`
//! are headings.
//!
//! JSON is one array with an object for each suite: `{"suite", "about", "rows"}`. A row is
//! `{"name", "ours", "peer", "theirs", "ratio", "quartiles"}`, or `{"name", "ours"}` for a figure
//! without a peer. A ratio is `null` if it is not a number. Markdown is a heading and a table for
//! each suite.

use std::io::{self, Write};

use serde_json::{Value, json};

use crate::race::{Contestant, Effort, median, percentile, race};

/// Format of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Aligned columns.
    #[default]
    Text,
    /// One array.
    Json,
    /// Tables.
    Markdown,
}

impl Format {
    /// Returns the format of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "text" => Some(Self::Text),
            "json" => Some(Self::Json),
            "markdown" => Some(Self::Markdown),
            _ => None,
        }
    }
}

/// One line of a table.
#[derive(Debug)]
struct Row {
    name: String,
    ours: f64,
    peer: Option<Peer>,
}

/// A peer next to our figure.
#[derive(Debug)]
struct Peer {
    name: String,
    theirs: f64,
    /// Median of the ratios of all rounds.
    ratio: f64,
    /// Quartiles of the ratios of all rounds.
    quartiles: [f64; 2],
}

impl Row {
    fn text(&self) -> String {
        let Self { name, ours, peer } = self;
        let Some(Peer { name: peer, theirs, ratio, quartiles: [q1, q3] }) = peer else {
            return format!("{name:<40} {ours:>10.1}");
        };
        let peer = format!("{peer:<16} {theirs:>10.1} {ratio:>8.2} {q1:>8.2} {q3:>8.2}");
        format!("{name:<40} {ours:>10.1} {peer}")
    }

    fn markdown(&self) -> String {
        let Self { name, ours, peer } = self;
        let Some(Peer { name: peer, theirs, ratio, quartiles: [q1, q3] }) = peer else {
            return format!("| `{name}` | {ours:.1} | | | | |");
        };
        format!("| `{name}` | {ours:.1} | {peer} | {theirs:.1} | {ratio:.2} | {q1:.2} to {q3:.2} |")
    }

    fn json(&self) -> Value {
        let Self { name, ours, peer } = self;
        let Some(Peer { name: peer, theirs, ratio, quartiles }) = peer else {
            return json!({ "name": name, "ours": ours });
        };
        json!({
            "name": name, "ours": ours, "peer": peer, "theirs": theirs, "ratio": ratio,
            "quartiles": quartiles,
        })
    }
}

/// Heading of a table as text.
fn text_heading() -> String {
    let [name, ours, peer] = ["# NAME", "OURS", "PEER"];
    let [theirs, ratio, q1, q3] = ["THEIRS", "RATIO", "Q1", "Q3"];
    format!("{name:<40} {ours:>10} {peer:<16} {theirs:>10} {ratio:>8} {q1:>8} {q3:>8}")
}

/// Heading of a table as Markdown.
const MARKDOWN_HEADING: &str = "\
| Comparison | Ours | Peer | Theirs | Ratio | Quartiles |\n|---|---:|---|---:|---:|---|";

/// Collects and prints the results of suites.
pub struct Report<'a> {
    effort: Effort,
    format: Format,
    out: &'a mut dyn Write,
    rows: Vec<Row>,
    suites: usize,
}

impl<'a> Report<'a> {
    /// Creates a report that prints text to `out`.
    pub fn new(effort: Effort, out: &'a mut dyn Write) -> Self {
        Self { effort, format: Format::Text, out, rows: Vec::new(), suites: 0 }
    }

    /// Selects another format.
    #[must_use]
    pub fn format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// Runs a suite and prints its table. If the suite fails, the table has the rows until then.
    ///
    /// # Errors
    /// Those of the suite and of the output.
    pub fn suite<E: From<io::Error>>(
        &mut self,
        name: &str,
        about: &str,
        run: impl FnOnce(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        self.rows.clear();
        let blank = if self.suites > 0 { "\n" } else { "" };
        if self.format == Format::Text {
            writeln!(self.out, "{blank}# {name}: {about}\n{}", text_heading())?;
        }
        let result = run(self);
        let rows = std::mem::take(&mut self.rows);
        match self.format {
            Format::Text => {}
            Format::Json => {
                let rows: Vec<Value> = rows.iter().map(Row::json).collect();
                let table = json!({ "suite": name, "about": about, "rows": rows });
                let separator = if self.suites > 0 { "," } else { "[" };
                write!(self.out, "{separator}\n{table:#}")?;
            }
            Format::Markdown => {
                writeln!(self.out, "{blank}### {name}\n\n{about}\n\n{MARKDOWN_HEADING}")?;
                rows.iter().try_for_each(|row| writeln!(self.out, "{}", row.markdown()))?;
            }
        }
        self.suites += 1;
        self.out.flush()?;
        result
    }

    /// Ends the report.
    ///
    /// # Errors
    /// Those of the output.
    pub fn finish(self) -> io::Result<()> {
        if self.format == Format::Json {
            let start = if self.suites > 0 { "" } else { "[" };
            writeln!(self.out, "{start}\n]")?;
        }
        self.out.flush()
    }

    /// Measures `ours` and each of `peers` in turns, and adds one row for each peer.
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
        let rounds = race(&mut contestants, self.effort);
        let Some((ours, theirs)) = rounds.split_first() else { return Ok(()) };
        for (peer, theirs) in contestants.iter().skip(1).zip(theirs) {
            self.compare(name, ours, peer.name, theirs)?;
        }
        Ok(())
    }

    /// Measures one contestant that has no peer, and adds its figure.
    ///
    /// # Errors
    /// Those of the output.
    pub fn time(&mut self, name: &str, contestant: Contestant<'_>) -> io::Result<()> {
        eprintln!("{name} (alone)");
        let rounds = race(&mut [contestant], self.effort);
        rounds.into_iter().try_for_each(|rounds| self.figure(name, median(rounds)))
    }

    /// Returns whether this is a test of the suites, whose figures are meaningless.
    #[must_use]
    pub fn is_test(&self) -> bool {
        self.effort.is_test()
    }

    /// Adds a figure without a peer.
    ///
    /// # Errors
    /// Those of the output.
    pub fn figure(&mut self, name: &str, figure: f64) -> io::Result<()> {
        self.add(Row { name: name.into(), ours: figure, peer: None })
    }

    /// Adds the figures of all rounds of both sides, in the order of the rounds.
    ///
    /// # Errors
    /// Those of the output.
    pub fn compare(
        &mut self,
        name: &str,
        ours: &[f64],
        peer: &str,
        theirs: &[f64],
    ) -> io::Result<()> {
        let ratios: Vec<f64> =
            ours.iter().zip(theirs).map(|(ours, theirs)| theirs / ours).collect();
        let [q1, ratio, q3] = [25, 50, 75].map(|percent| percentile(ratios.clone(), percent));
        let (ours, theirs) = (median(ours.to_vec()), median(theirs.to_vec()));
        let peer = Peer { name: peer.into(), theirs, ratio, quartiles: [q1, q3] };
        self.add(Row { name: name.into(), ours, peer: Some(peer) })
    }

    fn add(&mut self, row: Row) -> io::Result<()> {
        if self.format == Format::Text {
            writeln!(self.out, "{}", row.text())?;
            self.out.flush()?;
        }
        self.rows.push(row);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ratios of the rounds are 2, 3, 3 and 4.
    fn printed(format: Format) -> String {
        let mut out = Vec::new();
        let mut report = Report::new(Effort::TEST, &mut out).format(format);
        for suite in ["codec", "store"] {
            report
                .suite(suite, "times, in ns", |report| {
                    let name = format!("{suite}/get");
                    report.compare(&name, &[2.0, 2.0, 2.0, 2.0], "map", &[4.0, 6.0, 6.0, 8.0])?;
                    report.figure(&format!("{suite}/bytes"), 130.0)
                })
                .unwrap();
        }
        report.finish().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn text_has_one_line_of_seven_words_for_each_comparison() {
        let text = printed(Format::Text);
        let words = |line: &'static str| line.split(' ').collect::<Vec<_>>();
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        let codec = [
            words("# codec: times, in ns"),
            words("# NAME OURS PEER THEIRS RATIO Q1 Q3"),
            words("codec/get 2.0 map 6.0 3.00 3.00 4.00"),
            words("codec/bytes 130.0"),
        ];
        assert_eq!(lines[..4], codec);
        assert_eq!(lines.len(), 9, "the second table follows after an empty line: {text}");
        assert_eq!(lines[7], words("store/get 2.0 map 6.0 3.00 3.00 4.00"));
    }

    #[test]
    fn json_has_one_object_for_each_suite() {
        let tables: Value = serde_json::from_str(&printed(Format::Json)).unwrap();
        let table = |suite: &str| {
            json!({
                "suite": suite,
                "about": "times, in ns",
                "rows": [
                    {
                        "name": format!("{suite}/get"), "ours": 2.0, "peer": "map", "theirs": 6.0,
                        "ratio": 3.0, "quartiles": [3.0, 4.0],
                    },
                    { "name": format!("{suite}/bytes"), "ours": 130.0 },
                ],
            })
        };
        assert_eq!(tables, json!([table("codec"), table("store")]));
    }

    #[test]
    fn json_without_suites_is_an_empty_array() {
        let mut out = Vec::new();
        Report::new(Effort::TEST, &mut out).format(Format::Json).finish().unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&out).unwrap(), json!([]));
    }

    #[test]
    fn markdown_has_one_table_for_each_suite() {
        let table = |suite: &str| {
            format!(
                "### {suite}\n\ntimes, in ns\n\n\
                | Comparison | Ours | Peer | Theirs | Ratio | Quartiles |\n\
                |---|---:|---|---:|---:|---|\n\
                | `{suite}/get` | 2.0 | map | 6.0 | 3.00 | 3.00 to 4.00 |\n\
                | `{suite}/bytes` | 130.0 | | | | |\n"
            )
        };
        assert_eq!(printed(Format::Markdown), [table("codec"), table("store")].join("\n"));
    }

    #[test]
    fn failed_suite_has_the_rows_until_its_failure() {
        for format in [Format::Text, Format::Json, Format::Markdown] {
            let mut out = Vec::new();
            let mut report = Report::new(Effort::TEST, &mut out).format(format);
            let result = report.suite("codec", "times, in ns", |report| {
                report.figure("codec/bytes", 130.0)?;
                Err(io::Error::other("no disk"))
            });
            assert!(result.is_err());
            report.finish().unwrap();
            let text = String::from_utf8(out).unwrap();
            assert!(text.contains("codec/bytes") && text.contains("130.0"), "{text}");
        }
    }
}
