//! Follows an election, and campaigns in it.

use std::process::ExitCode;

use statestore_proto::client::WatchEnd;
use statestore_proto::lock::HolderStatus;
use statestore_tokio::{Election, HolderWatch, LockError, LockLost, StateStore, Status};
use tokio::sync::watch;

use crate::args::{Elect, Output};
use crate::connection;
use crate::escape::one_line;
use crate::failure::Failure;
use crate::lock::{loss_text, not_acquired, release_deadline, report_unconfirmed_release};
use crate::output::{json_text, line, notice};
use crate::signals::Signals;

/// Reported if the store responds but the state of the election does not arrive.
const NO_NOTIFICATIONS: &str = "the store responds, but sends no notifications of this election: \
    access rules or a policy may refuse the subscription to \
    clients/statestore/+/+/+/command/notify/+";

pub(crate) async fn run(args: Elect) -> Result<ExitCode, Failure> {
    // A leader resigns on each of these signals.
    let mut signals = Signals::new()?.with_hangup()?;
    let store = connection::store(&args.common)?;
    let mut election = store.election(args.name.clone()).lease(args.lease);
    if let Some(candidate) = &args.candidate {
        election = election.name(candidate);
    }
    let failed = Failure::request;
    let begun = async {
        // Without a store, this request fails after --timeout. A watch would wait without limit.
        election.leader().await?;
        election.watch().await
    };
    let Some(begun) = signals.unless_received(begun).await else { return Ok(ExitCode::SUCCESS) };
    let mut changes = begun.map_err(failed)?;
    let (stop, stopped) = watch::channel(args.candidate.is_none());
    let campaign = lead(&election, stopped);
    tokio::pin!(campaign);
    let (mut left, mut standing) = (args.count, args.candidate.is_some());
    let (mut is_known, mut is_silent) = (false, false);
    let patience = tokio::time::sleep(args.common.time_limit.timeout);
    tokio::pin!(patience);
    while left != Some(0) {
        tokio::select! {
            () = &mut patience, if !is_known => {
                if store.status().current() == Status::Online {
                    is_silent = true;
                    break;
                }
                patience.as_mut().reset(tokio::time::Instant::now() + args.common.time_limit.timeout);
                continue;
            }
            seen = changes.next() => match seen {
                Some(seen) => tokio::select! {
                    printed = print(&args, &seen) => printed?,
                    _ = signals.received() => break,
                },
                None => return Err(watch_ended(&changes, &store)),
            },
            ended = &mut campaign, if standing => {
                standing = false;
                ended.map_err(not_acquired)?;
            }
            _ = signals.received() => break,
        }
        is_known = true;
        left = left.map(|left| left - 1);
    }
    if standing {
        stop.send_replace(true);
        tokio::select! {
            ended = campaign => ended.map_err(not_acquired)?,
            () = release_deadline(&mut signals) => {
                report_unconfirmed_release(&args.name, args.lease);
            }
        }
    }
    drop(changes);
    store.shutdown().await;
    if is_silent { Err(Failure::bad_input(NO_NOTIFICATIONS)) } else { Ok(ExitCode::SUCCESS) }
}

/// Reason for the end of a watch.
fn watch_ended(changes: &HolderWatch, store: &StateStore) -> Failure {
    match changes.end() {
        Some(WatchEnd::Refused(error)) => Failure::refused(error),
        _ => Failure::stopped(&store.status().current()),
    }
}

/// Campaigns again after each loss, until `stop` is set or the campaign fails.
async fn lead(election: &Election, mut stop: watch::Receiver<bool>) -> Result<(), LockError> {
    loop {
        let leadership = tokio::select! {
            leadership = election.campaign() => leadership?,
            _ = stop.wait_for(|stop| *stop) => return Ok(()),
        };
        tokio::select! {
            lost = leadership.wait_lost() => notice(leadership_lost(&lost)),
            _ = stop.wait_for(|stop| *stop) => {
                // Resigning is ignored if the leadership is lost.
                let _ = leadership.resign().await;
                return Ok(());
            }
        }
    }
}

fn leadership_lost(lost: &LockLost) -> String {
    match lost {
        LockLost::Lost(reason) => format!("the leadership is lost: {}", loss_text(reason)),
        other => other.to_string(),
    }
}

async fn print(args: &Elect, seen: &HolderStatus) -> Result<(), Failure> {
    let name = match seen {
        HolderStatus::Held(holder) => one_line(holder.name()),
        HolderStatus::Free => "-".into(),
        HolderStatus::Unknown => "?".into(),
    };
    if args.common.format.output == Output::Text {
        return line(format!("{name}\n")).await;
    }
    let text = match seen {
        HolderStatus::Held(holder) => {
            json_text("leader", &args.name, Some(holder.name()), holder.version())
        }
        HolderStatus::Free => json_text("none", &args.name, None, None),
        HolderStatus::Unknown => json_text("unknown", &args.name, None, None),
    };
    line(text).await
}
