//! Exit codes of every command, with their meanings for help, manual page and README.

use std::process::ExitCode;

/// Outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Exit {
    Success,
    /// The command ran, and the result is negative: absent, not applied, a failed check.
    Negative,
    /// The input is invalid, or the store or broker refused it. Another attempt does not help.
    Refused,
    /// No response, or an address to listen on is not available. Another attempt may help.
    Unreachable,
    /// The operation succeeded, but its output could not be written.
    Output,
    /// A disk is full or failing.
    Storage,
    /// `lock`: the lock was lost while the command ran, with the code of `timeout`.
    LockLost,
    /// `lock` and `dev`, as a shell.
    CommandNotExecutable,
    CommandNotFound,
    Interrupt,
    Terminate,
}

impl Exit {
    /// Codes that operators see, in order, with their meanings.
    pub(crate) const LIST: [(Self, &str); 11] = [
        (Self::Success, "success"),
        (Self::Negative, "absent, not applied, not free in time, or a check failed"),
        (Self::Refused, "bad input, or refused by the store or broker"),
        (Self::Unreachable, "no broker or no store responded, or an address is in use"),
        (Self::Output, "the operation succeeded, but its output could not be written"),
        (Self::Storage, "a disk is full or failing"),
        (Self::LockLost, "lock: the lock was lost and its command was ended"),
        (Self::CommandNotExecutable, "lock, dev: the command cannot be executed"),
        (Self::CommandNotFound, "lock, dev: the command does not exist"),
        (Self::Interrupt, "interrupted by SIGINT (serve, dev, watch, elect: 0)"),
        (Self::Terminate, "ended by SIGTERM (serve, dev, watch, elect: 0)"),
    ];

    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Negative => 1,
            Self::Refused => 2,
            Self::Unreachable => 3,
            Self::Output => 4,
            Self::Storage => 5,
            Self::LockLost => 124,
            Self::CommandNotExecutable => 126,
            Self::CommandNotFound => 127,
            Self::Interrupt => 130,
            Self::Terminate => 143,
        }
    }

    /// Success, or [`Negative`](Self::Negative) if `is_success` is false.
    pub(crate) const fn success_if(is_success: bool) -> Self {
        if is_success { Self::Success } else { Self::Negative }
    }

    /// The list for help and man page.
    pub(crate) fn help() -> String {
        let lines = Self::LIST.map(|(exit, meaning)| format!("  {:<4} {meaning}\n", exit.number()));
        format!("Exit codes:\n{}", lines.concat())
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readme_lists_the_same_exit_codes() {
        for (exit, meaning) in Exit::LIST {
            let row = format!("| {} | {meaning} |", exit.number());
            assert!(include_str!("../README.md").contains(&row), "{row}");
        }
    }

    #[test]
    fn numbers_increase_in_the_order_of_the_variants() {
        assert!(Exit::LIST.is_sorted_by_key(|(exit, _)| exit.number()));
        assert!(Exit::LIST.is_sorted_by_key(|(exit, _)| *exit));
    }
}
