//! Counts with valgrind's tool callgrind.

use std::path::Path;
use std::process::{Command, Stdio};
use std::{fmt, io};

use crate::paths;

/// First argument of a program that executes one path. The others are its name and the number of
/// repetitions. See [`count`].
pub const COUNT: &str = "--execute";

/// Reason for a path without a count.
#[derive(Debug)]
pub enum CountError {
    /// `valgrind` could not be started.
    Start(io::Error),
    /// The program failed. This is its output.
    Failed(String),
    /// The output lacks the total. This is the output.
    NoTotal(String),
}

impl fmt::Display for CountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(_) => f.write_str("valgrind could not be started"),
            Self::Failed(output) => write!(f, "valgrind failed: {output}"),
            Self::NoTotal(output) => write!(f, "valgrind printed no total: {output}"),
        }
    }
}

impl std::error::Error for CountError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Start(error) => Some(error),
            Self::Failed(_) | Self::NoTotal(_) => None,
        }
    }
}

/// Returns the instructions of one call of a path.
///
/// It executes `program` twice, with no repetition and with all of them. The difference contains
/// neither the start of the process nor the preparation of the path.
///
/// # Errors
/// If valgrind is missing, or the program fails.
pub fn count(program: &Path, path: &paths::Path) -> Result<f64, CountError> {
    let prepared = total(program, path, 0)?;
    let executed = total(program, path, path.repetitions)?;
    #[expect(clippy::cast_precision_loss, reason = "below 2^52")]
    let each = executed.saturating_sub(prepared) as f64 / path.repetitions as f64;
    Ok(each)
}

fn total(program: &Path, path: &paths::Path, repetitions: usize) -> Result<u64, CountError> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([COUNT, path.name.as_str(), &repetitions.to_string()])
        .stdin(Stdio::null())
        .output()
        .map_err(CountError::Start)?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        return Err(CountError::Failed(text));
    }
    collected(&text).ok_or(CountError::NoTotal(text))
}

/// Reads `==PID== Collected : NUMBER`.
fn collected(text: &str) -> Option<u64> {
    let number = |line: &str| line.split_once("Collected : ")?.1.trim().parse().ok();
    text.lines().rev().find_map(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn total_is_read_from_the_last_line_of_callgrind() {
        let text = "==7== Callgrind, a call-graph generating cache profiler\n==7== \n\
            ==7== Events    : Ir\n==7== Collected : 4711\n";
        assert_eq!(collected(text), Some(4_711));
        assert_eq!(collected("==7== Collected : many\n"), None);
        assert_eq!(collected(""), None);
    }
}
