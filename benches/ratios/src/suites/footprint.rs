//! Memory and start of `statestore serve` without clients, in the profile of the released binaries.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::{env, fs};

use super::Suite;
use crate::bare::Failure;
use crate::race::{Lap, median};
use crate::report::Report;

pub(super) const SUITE: Suite = Suite {
    name: "footprint",
    about: "`statestore serve` of the profile dist when idle: resident MB, ms from start to ready, MB of the binary",
    run,
};

fn run(report: &mut Report<'_>) -> Result<(), Failure> {
    let Some(binary) = binary(report.is_test())? else {
        eprintln!(
            "footprint: skipped: the command is missing (cargo build --profile dist -p statestore)"
        );
        return Ok(());
    };
    let rounds = if report.is_test() { 1 } else { 9 };
    let (mut resident, mut start) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let lap = Lap::start();
        let served = Served::start(&binary)?;
        start.push(lap.time().as_secs_f64() * 1e3);
        resident.extend(served.resident_mb());
    }
    if !resident.is_empty() {
        report.figure("footprint/resident-mb", median(resident))?;
    }
    report.figure("footprint/start-ms", median(start))?;
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    report
        .figure("footprint/binary-mb", fs::metadata(&binary)?.len() as f64 / 1e6)
        .map_err(Into::into)
}

/// Returns the command of the profile `dist`. In a test, returns the command in the parent folder.
fn binary(is_test: bool) -> std::io::Result<Option<PathBuf>> {
    let own = env::current_exe()?;
    let profile = own.ancestors().nth(if is_test { 2 } else { 1 });
    let profile = match is_test {
        true => profile.map(Path::to_owned),
        false => profile.map(|profile| profile.with_file_name("dist")),
    };
    let name = format!("statestore{}", env::consts::EXE_SUFFIX);
    Ok(profile.map(|profile| profile.join(name)).filter(|path| path.is_file()))
}

/// A running store. Dropping this ends it.
struct Served(Child);

impl Served {
    /// Starts the store and waits until it is ready.
    fn start(binary: &PathBuf) -> Result<Self, Failure> {
        let mut command = Command::new(binary);
        command.args(["serve", "--listen", "127.0.0.1:0"]).env_remove("STATESTORE_BROKER");
        let mut served = Self(command.stdout(Stdio::piped()).spawn()?);
        let mut line = String::new();
        let out = served.0.stdout.as_mut().ok_or("standard output is missing")?;
        BufReader::new(out).read_line(&mut line)?;
        assert!(line.starts_with("statestore: ready on mqtt://127.0.0.1:"), "{line:?}");
        Ok(served)
    }

    /// Returns the resident memory. `None` if the system does not report it.
    fn resident_mb(&self) -> Option<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kibibytes: f64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
        Some(kibibytes * 1_024.0 / 1e6)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::race::Effort;

    #[test]
    fn binary_size_and_memory_are_reported_if_it_is_built() {
        let mut out = Vec::new();
        run(&mut Report::new(Effort::TEST, &mut out)).unwrap();
        let lines = String::from_utf8(out).unwrap().lines().count();
        assert!(matches!((binary(true).unwrap(), lines), (None, 0) | (Some(_), 2..=3)));
    }
}
