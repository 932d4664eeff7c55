//! `ratios [--format text|json|markdown] SUITE...` prints one table for each suite: our figures, a
//! peer's, the ratio, and its spread. All sides take turns in one run.
//!
//! [`statestore_ratios::report`] documents the formats. Progress goes to standard error.

use std::path::Path;
use std::process::ExitCode;

use statestore_ratios::bare::Failure;
use statestore_ratios::race::Effort;
use statestore_ratios::report::{Format, Report};
use statestore_ratios::suites::{self, SUITES, Suite};

/// The released command has this allocator.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> Result<ExitCode, Failure> {
    let Some((format, chosen)) = parse(std::env::args().skip(1)) else {
        usage();
        return Ok(ExitCode::from(2));
    };
    let mut out = std::io::stdout().lock();
    let mut report = Report::new(Effort::FULL, &mut out).format(format);
    let profile = profile();
    let run = |Suite { name, about, run }: &Suite| {
        report.suite(name, &format!("{about}; profile {profile}"), run)
    };
    let result = chosen.into_iter().try_for_each(run);
    // Results before a failure are a complete document too.
    report.finish()?;
    result.map(|()| ExitCode::SUCCESS)
}

/// Returns the profile of cargo that built this program: the name of its folder.
fn profile() -> String {
    let own = std::env::current_exe().unwrap_or_default();
    let folder = own.parent().and_then(Path::file_name).unwrap_or_default();
    folder.to_string_lossy().into_owned()
}

/// Returns the format and the suites. `None` if an argument is invalid, or no suite is named.
fn parse(arguments: impl Iterator<Item = String>) -> Option<(Format, Vec<&'static Suite>)> {
    let (mut format, mut chosen) = (Format::default(), Vec::new());
    let mut arguments = arguments;
    while let Some(argument) = arguments.next() {
        if argument == "--format" {
            format = Format::parse(&arguments.next()?)?;
        } else {
            chosen.push(suites::find(&argument)?);
        }
    }
    (!chosen.is_empty()).then_some((format, chosen))
}

fn usage() {
    eprintln!("usage: ratios [--format text|json|markdown] SUITE...\n\nsuites:");
    for Suite { name, about, .. } in SUITES {
        eprintln!("  {name:<10} {about}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &str) -> Option<(Format, Vec<&'static str>)> {
        let (format, suites) = parse(arguments.split_whitespace().map(str::to_owned))?;
        Some((format, suites.iter().map(|suite| suite.name).collect()))
    }

    #[test]
    fn arguments_select_format_and_suites() {
        assert_eq!(parsed("codec hlc"), Some((Format::Text, vec!["codec", "hlc"])));
        assert_eq!(parsed("--format json hlc"), Some((Format::Json, vec!["hlc"])));
        assert_eq!(parsed("hlc --format markdown"), Some((Format::Markdown, vec!["hlc"])));
    }

    #[test]
    fn invalid_arguments_are_rejected() {
        for arguments in ["", "--format json", "--format yaml hlc", "hlc --format", "unknown"] {
            assert_eq!(parsed(arguments), None, "{arguments}");
        }
    }
}
