//! Runs a command while a lock is held.

use std::process::ExitCode;
use std::time::Duration;

use rustix::process::{Signal, kill_current_process_group};
use statestore_proto::lock::NotAcquired;
use statestore_tokio::{LockError, LockGuard, LockLost, LossReason};
use tokio::process::Command;

use crate::args::Lock;
use crate::connection;
use crate::escape::one_line;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::job::{Job, exit_code, not_started};
use crate::output::notice;
use crate::signals::{self, Signals};

/// Part of the lease that is the margin. The holder considers its lease over that much earlier than
/// the store does, and the command must end within the margin.
const MARGIN: u32 = 10;

/// Minimum time between SIGTERM and SIGKILL, since programs need time to clean up.
///
/// With a lease below ten seconds, the lease may end before, and another client may hold the lock.
/// Then only the fencing token separates the two, as it does if the command is stopped or slow.
const GRACE_MIN: Duration = Duration::from_secs(1);

/// Maximum time to wait for the release of a lock by an unreachable store.
const RELEASE_WAIT_MAX: Duration = Duration::from_secs(5);

pub(crate) async fn run(args: Lock) -> Result<ExitCode, Failure> {
    // The command has its own process group, so signals must be forwarded to it.
    let mut signals = Signals::for_job()?;
    let store = connection::store(&args.common)?;
    let margin = args.lease / MARGIN;
    let mut lock = store.lock(args.name.clone()).lease(args.lease).margin(margin);
    if let Some(wait) = args.wait {
        lock = lock.acquire_timeout(wait);
    }
    // Without a store, this request fails after --timeout. `acquire` would wait without limit.
    let holder = match signals.or_received(lock.holder()).await {
        Ok(holder) => holder.map_err(Failure::request)?,
        Err(signal) => return Ok(signals::exit_code(signal)),
    };
    if let Some(holder) = holder {
        notice(format_args!("waiting for {}", one_line(holder.name())));
    }
    let guard = match signals.or_received(lock.acquire()).await {
        Ok(Ok(guard)) => guard,
        Err(signal) => {
            store.shutdown().await;
            return Ok(signals::exit_code(signal));
        }
        Ok(Err(LockError::NotAcquired(NotAcquired::Deadline))) => {
            notice(format_args!("{} was not released in time; use a longer --wait", args.name));
            store.shutdown().await;
            return Ok(Exit::Negative.into());
        }
        Ok(Err(error)) => return Err(not_acquired(error)),
    };
    let mut typed = None;
    let grace = margin.max(GRACE_MIN);
    let ended = guarded(&args.command, &guard, &mut signals, grace, &mut typed).await;
    tokio::select! {
        // The release is ignored if the lock is lost.
        _ = guard.release() => {}
        () = release_deadline(&mut signals) => report_unconfirmed_release(&args.name, args.lease),
    }
    store.shutdown().await;
    if let Some(signal) = typed {
        let _ = kill_current_process_group(signal);
    }
    ended
}

/// Returns when the wait for the release ends: after a limit, or at a signal.
pub(crate) async fn release_deadline(signals: &mut Signals) {
    let _ = tokio::time::timeout(RELEASE_WAIT_MAX, signals.received()).await;
}

/// Reports that the release of a lock was not confirmed.
pub(crate) fn report_unconfirmed_release(name: &str, lease: Duration) {
    notice(format_args!(
        "the store did not confirm the release of {name}; the lock may stay held for {lease:?}"
    ));
}

pub(crate) fn not_acquired(error: LockError) -> Failure {
    match error {
        LockError::NotAcquired(reason @ (NotAcquired::Unreachable(_) | NotAcquired::NoAnswer)) => {
            Failure::unreachable(format_args!("the lock was not acquired: {reason}"))
        }
        LockError::NotAcquired(reason) => {
            Failure::bad_input(format_args!("the lock was not acquired: {reason}"))
        }
        LockError::Request(error) => Failure::request(error),
        other => Failure::bad_input(other),
    }
}

/// Reason for the loss of a lock or leadership.
pub(crate) fn loss_text(reason: &LossReason) -> String {
    match reason {
        LossReason::StoreReplaced => "the store restarted, or another store replaced it".to_owned(),
        other => other.to_string(),
    }
}

/// Runs a command until it exits or the lock is lost. `typed` is the signal that the terminal sent
/// to the command.
async fn guarded(
    command: &[String],
    guard: &LockGuard,
    signals: &mut Signals,
    grace: Duration,
    typed: &mut Option<Signal>,
) -> Result<ExitCode, Failure> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(Failure::bad_input("the command is missing: give it after --"));
    };
    let token = guard.token().map(|token| token.to_string()).unwrap_or_default();
    let mut command = Command::new(program);
    command.args(arguments).env("STATESTORE_FENCING_TOKEN", token);
    let mut job = match Job::start(&mut command) {
        Ok(job) => job,
        Err(error) => return Ok(not_started(program, &error)),
    };
    loop {
        tokio::select! {
            status = job.ended() => {
                *typed = job.typed();
                return status.map(exit_code).map_err(Failure::system);
            }
            lost = guard.wait_lost() => {
                let lost = match &lost {
                    LockLost::Lost(reason) => format!("the lock is lost: {}", loss_text(reason)),
                    other => other.to_string(),
                };
                notice(format_args!("{lost}; ending {program}"));
                job.end(grace).await.map_err(Failure::system)?;
                return Ok(Exit::LockLost.into());
            }
            signal = signals.received() => job.signal(signal),
        }
    }
}
