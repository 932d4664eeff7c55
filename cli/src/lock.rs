//! A command that runs while a lock is held.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use rustix::process::{Signal, kill_current_process_group};
use statestore_proto::lock::NotAcquired;
use statestore_tokio::{LockError, LockGuard, LockLost, LossReason, StateStore};
use tokio::process::Command;

use crate::args::Lock;
use crate::connection;
use crate::escape::one_line;
use crate::failure::Failure;
use crate::job::Job;
use crate::output::say;
use crate::signals::{Asked, Signals};

/// The lock was not free in time.
const NOT_ACQUIRED: u8 = 1;

/// The lock was lost while the command ran, whatever that ended with: as `timeout` has it.
const LOST: u8 = 124;

/// Part of the lease by which this holder is ahead of the store: what the command has to end in.
const MARGIN: u32 = 10;

/// The command has this long to end whatever the lease: in less, no program cleans up after itself. With a lease of less
/// than ten seconds that may be past its end, when another already holds the lock and only the token keeps the two
/// apart; so it does after any lease when the command is stopped or slow.
const GRACE_MIN: Duration = Duration::from_secs(1);

/// How long an unreachable store is waited for at the end.
const GOODBYE_MAX: Duration = Duration::from_secs(5);

pub(crate) async fn run(args: Lock) -> Result<ExitCode, Failure> {
    // The command is in a group of its own, so that nobody else tells it.
    let mut signals = Signals::new()?.with_hangup()?.with_quit()?;
    let store = connection::store(&args.common)?;
    let margin = args.lease / MARGIN;
    let mut lock = store.lock(args.name.clone()).lease(args.lease).margin(margin);
    if let Some(wait) = args.wait {
        lock = lock.wait(wait);
    }
    // Asked first, since a lock waits patiently where there is no store at all.
    let Some(holder) = signals.unless_received(lock.holder()).await else {
        return Ok(ExitCode::from(NOT_ACQUIRED));
    };
    let holder = holder.map_err(|error| Failure::request(error, &store))?;
    if let Some(holder) = holder {
        say(format_args!("waiting for {}", one_line(holder.name())));
    }
    let Some(guard) = signals.unless_received(lock.acquire()).await else {
        store.shutdown().await;
        return Ok(ExitCode::from(NOT_ACQUIRED));
    };
    let guard = match guard {
        Ok(guard) => guard,
        Err(LockError::NotAcquired(NotAcquired::Deadline)) => {
            say(format_args!("{} did not become free in time; try a longer --wait", args.name));
            store.shutdown().await;
            return Ok(ExitCode::from(NOT_ACQUIRED));
        }
        Err(error) => return Err(not_acquired(error, &store)),
    };
    let mut typed = None;
    let grace = margin.max(GRACE_MIN);
    let ended = guarded(&args.command, &guard, &mut signals, grace, &mut typed).await;
    tokio::select! {
        // When it is lost there is nothing to give back.
        _ = guard.release() => {}
        () = given_up(&mut signals) => say_left(&args.name, args.lease),
    }
    store.shutdown().await;
    if let Some(signal) = typed {
        let _ = kill_current_process_group(signal);
    }
    ended
}

/// Returns when what is given back is not to be waited for any longer.
pub(crate) async fn given_up(signals: &mut Signals) {
    let _ = tokio::time::timeout(GOODBYE_MAX, signals.received()).await;
}

/// Says that a lock was not given back.
pub(crate) fn say_left(name: &str, lease: Duration) {
    say(format_args!("the store did not say that {name} is free; it may stay taken for {lease:?}"));
}

pub(crate) fn not_acquired(error: LockError, store: &StateStore) -> Failure {
    match error {
        LockError::NotAcquired(reason) => {
            Failure::bad_input(format_args!("the lock was not acquired: {reason}"))
        }
        LockError::Request(error) => Failure::request(error, store),
        other => Failure::bad_input(other),
    }
}

/// Why a lock or a leadership is lost, in a sentence.
pub(crate) fn loss(reason: &LossReason) -> String {
    match reason {
        LossReason::StoreReplaced => {
            "the store has started again, or another has taken its place".to_owned()
        }
        other => other.to_string(),
    }
}

/// Runs a command until it ends, or has to; `typed` is the signal by which somebody at its terminal ended it.
async fn guarded(
    command: &[String],
    guard: &LockGuard,
    signals: &mut Signals,
    grace: Duration,
    typed: &mut Option<Signal>,
) -> Result<ExitCode, Failure> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(Failure::bad_input("no command to run"));
    };
    let token = guard.token().map(|token| token.to_string()).unwrap_or_default();
    let mut command = Command::new(program);
    command.args(arguments).env("STATESTORE_FENCING_TOKEN", token);
    let mut job = Job::start(&mut command)
        .map_err(|error| Failure::bad_input(format_args!("{program}: {error}")))?;
    loop {
        tokio::select! {
            status = job.ended() => {
                *typed = job.typed();
                return status.map(exit_code).map_err(Failure::system);
            }
            lost = guard.lost() => {
                let lost = match &lost {
                    LockLost::Lost(reason) => format!("the lock is lost: {}", loss(reason)),
                    other => other.to_string(),
                };
                say(format_args!("{lost}; ending {program}"));
                job.end(grace).await.map_err(Failure::system)?;
                return Ok(ExitCode::from(LOST));
            }
            asked = signals.received() => match asked {
                Asked::Terminate => job.tell(Signal::TERM),
                Asked::Interrupt => job.tell(Signal::INT),
                Asked::Hangup => job.tell(Signal::HUP),
                Asked::Quit => job.tell(Signal::QUIT),
            },
        }
    }
}

/// As a shell has it: the command's own code, or 128 and the signal that ended it.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
}
