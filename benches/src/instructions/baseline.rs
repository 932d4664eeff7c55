//! A baseline as text, and the comparison of counts with it.

use std::collections::BTreeMap;
use std::fmt;

/// Increase of a count in percent that is accepted.
pub const LIMIT_PERCENT: f64 = 3.0;

/// The compiler, and the target that it compiled for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toolchain {
    /// Version of rustc with its commit.
    pub rustc: String,
    /// Target triple.
    pub target: String,
}

impl Toolchain {
    /// Returns the toolchain that compiled this program.
    #[must_use]
    pub fn current() -> Self {
        Self { rustc: env!("BENCHES_RUSTC").into(), target: env!("BENCHES_TARGET").into() }
    }
}

impl fmt::Display for Toolchain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rustc {} for {}", self.rustc, self.target)
    }
}

/// Instructions of one call, by the name of the path.
type Counts = BTreeMap<String, f64>;

/// Counts, and the toolchain that they are valid for.
///
/// As text: comments after `#`, `rustc VERSION`, `target TRIPLE`, and a line `NAME COUNT` for each
/// path.
#[derive(Clone, Debug, PartialEq)]
pub struct Baseline {
    /// The toolchain.
    pub toolchain: Toolchain,
    /// The counts.
    pub counts: Counts,
}

impl Baseline {
    /// Parses the text of a baseline.
    ///
    /// # Errors
    /// The first invalid line, or the missing one.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (mut rustc, mut target, mut counts) = (None, None, Counts::new());
        for line in text.lines().map(str::trim) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match line.split_once(char::is_whitespace) {
                Some(("rustc", version)) => rustc = Some(version.trim().to_owned()),
                Some(("target", triple)) => target = Some(triple.trim().to_owned()),
                Some((name, count)) => {
                    let count = count.trim().parse::<f64>().ok().filter(|count| *count > 0.0);
                    let count = count.ok_or_else(|| format!("invalid count: {line}"))?;
                    if counts.insert(name.to_owned(), count).is_some() {
                        return Err(format!("{name} is there twice"));
                    }
                }
                None => return Err(format!("invalid line: {line}")),
            }
        }
        let rustc = rustc.ok_or("the line rustc is missing")?;
        let target = target.ok_or("the line target is missing")?;
        Ok(Self { toolchain: Toolchain { rustc, target }, counts })
    }

    /// Compares counts with this baseline. `names` are the paths in the order of the comparison.
    #[must_use]
    pub fn compare(&self, toolchain: &Toolchain, counts: &[(&str, f64)]) -> Comparison {
        let row = |(name, now): &(&str, f64)| Row {
            name: (*name).to_owned(),
            baseline: self.counts.get(*name).copied(),
            now: Some(*now),
        };
        let is_removed = |name: &String| !counts.iter().any(|(path, _)| path == name);
        let removed = self.counts.iter().filter(|(name, _)| is_removed(name));
        let removed = removed.map(|(name, count)| Row {
            name: name.clone(),
            baseline: Some(*count),
            now: None,
        });
        let rows = counts.iter().map(row).chain(removed).collect();
        let other = (self.toolchain != *toolchain).then(|| self.toolchain.clone());
        Comparison { rows, other }
    }
}

impl fmt::Display for Baseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# Instructions of one call of each counted path (benches/src/paths).")?;
        writeln!(f, "# Compare: ./check instructions")?;
        writeln!(f, "# Write:   INSTRUCTIONS=write ./check instructions")?;
        let Toolchain { rustc, target } = &self.toolchain;
        writeln!(f, "rustc {rustc}\ntarget {target}")?;
        self.counts.iter().try_for_each(|(name, count)| writeln!(f, "{name:<32} {count:>10.0}"))
    }
}

/// One path. A count is missing if the path is new or was removed.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    name: String,
    baseline: Option<f64>,
    now: Option<f64>,
}

impl Row {
    fn change_percent(&self) -> Option<f64> {
        let percent = (self.now? / self.baseline? - 1.0) * 100.0;
        // In steps of 0.1; the sum removes the sign of a zero.
        Some((percent * 10.0).round() / 10.0 + 0.0)
    }

    fn note(&self) -> &'static str {
        match (self.baseline, self.now, self.change_percent()) {
            (None, ..) => "not in the baseline",
            (_, None, _) => "removed",
            (.., Some(percent)) if percent > LIMIT_PERCENT => "slower",
            (.., Some(percent)) if percent < -LIMIT_PERCENT => "faster",
            _ => "",
        }
    }
}

/// Counts next to those of a baseline.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    rows: Vec<Row>,
    /// Toolchain of the baseline, if it is another one.
    other: Option<Toolchain>,
}

impl Comparison {
    /// Returns whether the comparison fails: the toolchain is that of the baseline, and a path is
    /// slower than the limit, or the baseline has other paths. With another toolchain a comparison
    /// never fails.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        let is_failure = |row: &Row| !matches!(row.note(), "" | "faster");
        self.other.is_none() && self.rows.iter().any(is_failure)
    }

    /// Returns whether a path is faster than the limit, so that a new baseline would detect
    /// smaller regressions.
    #[must_use]
    pub fn has_improved(&self) -> bool {
        self.other.is_none() && self.rows.iter().any(|row| row.note() == "faster")
    }

    /// Returns the toolchain of the baseline if it is another one.
    #[must_use]
    pub const fn other_toolchain(&self) -> Option<&Toolchain> {
        self.other.as_ref()
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<32} {:>10} {:>10} {:>8}", "path", "baseline", "now", "change")?;
        let number =
            |count: Option<f64>| count.map_or_else(|| "-".into(), |count| format!("{count:.0}"));
        for row in &self.rows {
            let change =
                row.change_percent().map_or_else(|| "-".into(), |change| format!("{change:+.1} %"));
            let (baseline, now, note) = (number(row.baseline), number(row.now), row.note());
            let line = format!("{:<32} {baseline:>10} {now:>10} {change:>8}  {note}", row.name);
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toolchain(rustc: &str) -> Toolchain {
        Toolchain { rustc: rustc.into(), target: "x86_64-unknown-linux-musl".into() }
    }

    fn baseline() -> Baseline {
        let counts = [("get".to_owned(), 100.0), ("set".to_owned(), 2_000.0)].into();
        Baseline { toolchain: toolchain("1.95.0 (59807616e 2026-04-14)"), counts }
    }

    fn compare(get: f64) -> Comparison {
        let baseline = baseline();
        baseline.compare(&baseline.toolchain, &[("get", get), ("set", 2_000.0)])
    }

    #[test]
    fn text_of_a_baseline_is_parsed_to_the_same_baseline() {
        assert_eq!(Baseline::parse(&baseline().to_string()), Ok(baseline()));
    }

    #[test]
    fn invalid_baselines_are_rejected() {
        for (text, error) in [
            ("target t", "the line rustc is missing"),
            ("rustc 1.95.0", "the line target is missing"),
            ("rustc 1\ntarget t\nget", "invalid line: get"),
            ("rustc 1\ntarget t\nget many", "invalid count: get many"),
            ("rustc 1\ntarget t\nget 0", "invalid count: get 0"),
            ("rustc 1\ntarget t\nget 1\nget 2", "get is there twice"),
        ] {
            assert_eq!(Baseline::parse(text), Err(error.into()));
        }
    }

    #[test]
    fn comparison_fails_above_the_limit_only() {
        assert!(!compare(100.0).is_failure());
        assert!(!compare(102.9).is_failure());
        assert!(compare(103.1).is_failure());
        assert!(!compare(96.9).is_failure() && compare(96.9).has_improved());
        assert!(!compare(97.1).has_improved());
    }

    #[test]
    fn comparison_fails_if_the_baseline_has_other_paths() {
        let (baseline, counts) = (baseline(), [("get", 100.0), ("set", 2_000.0), ("del", 1.0)]);
        assert!(baseline.compare(&baseline.toolchain, &counts).is_failure(), "one is new");
        assert!(!baseline.compare(&baseline.toolchain, &counts[..2]).is_failure());
        assert!(baseline.compare(&baseline.toolchain, &counts[..1]).is_failure(), "one is removed");
    }

    #[test]
    fn comparison_with_another_toolchain_never_fails() {
        let comparison = baseline().compare(&toolchain("1.96.0"), &[("get", 1_000.0)]);
        assert!(!comparison.is_failure() && !comparison.has_improved());
        assert_eq!(comparison.other_toolchain(), Some(&baseline().toolchain));
    }

    #[test]
    fn table_has_one_line_per_path() {
        let baseline = baseline();
        let table = baseline.compare(&baseline.toolchain, &[("get", 110.0), ("del", 7.0)]);
        let expected = "\
path                               baseline        now   change
get                                     100        110  +10.0 %  slower
del                                       -          7        -  not in the baseline
set                                    2000          -        -  removed
";
        assert_eq!(table.to_string(), expected);
    }
}
