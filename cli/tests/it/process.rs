//! The command as a process, with nothing from the environment of the tests.

use std::process::Command;

pub(crate) use statestore_testkit::process::command::{Ended, Running, run, run_with_input};

/// The command, with nothing from the environment of the tests.
pub(crate) fn statestore() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_statestore"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("STATESTORE_") {
            command.env_remove(name);
        }
    }
    command
}

/// Memory that a process holds, in kilobytes; `None` where the system does not tell.
pub(crate) fn resident_kb(process_id: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process_id}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}
