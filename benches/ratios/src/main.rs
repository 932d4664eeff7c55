//! `ratios SUITE...`: our figures, a peer's and the ratio, from one run in which all sides take turns.
//!
//! One line per comparison, `NAME OURS PEER THEIRS RATIO`; less is better of the figures, more of the ratio. Progress
//! goes to standard error.

use std::process::ExitCode;

use statestore_ratios::bare::Failure;
use statestore_ratios::race::Effort;
use statestore_ratios::report::Report;
use statestore_ratios::suites::{self, SUITES, Suite};

fn main() -> Result<ExitCode, Failure> {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let chosen: Option<Vec<&Suite>> = names.iter().map(|name| suites::find(name)).collect();
    let Some(chosen) = chosen.filter(|suites| !suites.is_empty()) else {
        usage();
        return Ok(ExitCode::from(2));
    };
    let mut out = std::io::stdout().lock();
    let mut report = Report::new(Effort::FULL, &mut out);
    for suite in chosen {
        (suite.run)(&mut report)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn usage() {
    eprintln!("usage: ratios SUITE...\n\nsuites:");
    for Suite { name, about, .. } in SUITES {
        eprintln!("  {name:<10} {about}");
    }
}
