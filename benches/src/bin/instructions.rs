//! `instructions [--write] [PATH...]` counts the instructions of paths and compares them
//! with `benches/instructions.txt`. `--write` replaces that file.
//!
//! Exit code 1 means that a path takes over 3 % more instructions than in the baseline, and that
//! the baseline is of the same toolchain. `./check instructions` builds and runs this program.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use statestore_benches::instructions::{
    Baseline, COUNT, Comparison, LIMIT_PERCENT, Toolchain, count,
};
use statestore_benches::paths::{self, counted, find};

/// Allocators are compiled in too. The one of musl is slow, so its instructions would hide those of
/// a small regression.
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

const USAGE: &str = "usage: instructions [--write] [PATH...]";

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut arguments: Vec<String> = env::args().skip(1).collect();
    if let [first, name, repetitions] = &arguments[..]
        && first == COUNT
    {
        execute(&find(name).ok_or("no such path")?, repetitions.parse()?);
        return Ok(ExitCode::SUCCESS);
    }
    let is_writing = arguments.first().is_some_and(|first| first == "--write");
    if is_writing {
        arguments.remove(0);
    }
    let chosen: Option<Vec<paths::Path>> = arguments.iter().map(|name| find(name)).collect();
    let Some(chosen) = chosen.filter(|chosen| !is_writing || chosen.is_empty()) else {
        eprintln!("{USAGE}\n\npaths:");
        counted().iter().for_each(|path| eprintln!("  {}", path.name));
        return Ok(ExitCode::from(2));
    };
    let is_all = chosen.is_empty();
    let chosen = if is_all { counted() } else { chosen };

    let counts = count_all(&env::current_exe()?, &chosen)?;
    if is_writing {
        write(&counts)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut baseline = Baseline::parse(&fs::read_to_string(baseline_path())?)?;
    if !is_all {
        baseline.counts.retain(|name, _| chosen.iter().any(|path| path.name == *name));
    }
    let comparison = baseline.compare(&Toolchain::current(), &counts);
    print!("{comparison}");
    Ok(verdict(&comparison))
}

/// Executes a path under callgrind. Nothing is freed at the end: that is not a part of a call.
fn execute(path: &paths::Path, repetitions: usize) {
    let mut call = path.prepare();
    for _ in 0..repetitions {
        call();
    }
    std::mem::forget(call);
}

fn count_all<'a>(
    program: &Path,
    paths: &'a [paths::Path],
) -> Result<Vec<(&'a str, f64)>, Box<dyn Error>> {
    paths.iter().map(|path| Ok((path.name.as_str(), count(program, path)?))).collect()
}

fn write(counts: &[(&str, f64)]) -> Result<(), Box<dyn Error>> {
    let counts: BTreeMap<String, f64> =
        counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    let baseline = Baseline { toolchain: Toolchain::current(), counts };
    fs::write(baseline_path(), baseline.to_string())?;
    print!("{baseline}");
    Ok(())
}

fn baseline_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("instructions.txt")
}

fn verdict(comparison: &Comparison) -> ExitCode {
    if let Some(other) = comparison.other_toolchain() {
        println!("the baseline is of {other},\nthis program of {}.", Toolchain::current());
        println!("Counts of different toolchains differ, so this comparison cannot fail.");
        return ExitCode::SUCCESS;
    }
    if comparison.is_failure() {
        println!(
            "failed: a path takes over {LIMIT_PERCENT} % more instructions, or lacks a count."
        );
        println!(
            "If that is intended, write a new baseline: INSTRUCTIONS=write ./check instructions"
        );
        return ExitCode::FAILURE;
    }
    if comparison.has_improved() {
        println!("A path is faster by over {LIMIT_PERCENT} %. A new baseline would preserve that:");
        println!("INSTRUCTIONS=write ./check instructions");
    }
    ExitCode::SUCCESS
}
