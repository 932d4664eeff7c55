//! The command as a process, without the environment variables of the tests.

use std::process::Command;

pub(crate) use statestore_testkit::process::command::{Ended, Running, run, run_with_input};

/// Returns the command, without the environment variables of the tests.
pub(crate) fn statestore() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_statestore"));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("STATESTORE_") || text.starts_with("AIO_") {
            command.env_remove(name);
        }
    }
    command
}

/// Returns the resident memory of a process in kilobytes, or `None` if the system does not report
/// it.
pub(crate) fn resident_kb(process_id: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process_id}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}
