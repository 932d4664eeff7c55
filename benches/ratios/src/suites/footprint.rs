//! Memory and start of `statestore serve` without clients.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::{env, fs};

use super::Suite;
use crate::bare::Failure;
use crate::race::{Lap, median};
use crate::report::Report;

pub(super) const SUITE: Suite = Suite {
    name: "footprint",
    about: "`statestore serve` when idle: resident MB, ms from start to ready, MB of the binary",
    run,
};

fn run(report: &mut Report<'_>) -> Result<(), Failure> {
    let Some(binary) = binary()? else {
        eprintln!(
            "footprint: skipped: the command is missing (cargo build --release -p statestore)"
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

/// Returns the command in the folder of this program, or in the parent folder of a test.
fn binary() -> std::io::Result<Option<PathBuf>> {
    let own = env::current_exe()?;
    let name = format!("statestore{}", env::consts::EXE_SUFFIX);
    Ok(own.ancestors().skip(1).take(2).map(|folder| folder.join(&name)).find(|path| path.is_file()))
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
        assert!(matches!((binary().unwrap(), lines), (None, 0) | (Some(_), 2..=3)));
    }
}
