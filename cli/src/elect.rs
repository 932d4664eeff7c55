//! Who leads an election, as it changes; and standing for it.

use std::process::ExitCode;

use statestore_proto::client::WatchEnd;
use statestore_proto::lock::HolderStatus;
use statestore_tokio::{Election, HolderWatch, LockError, LockLost, StateStore, Status};
use tokio::sync::watch;

use crate::args::{Elect, Output};
use crate::connection;
use crate::escape::one_line;
use crate::failure::Failure;
use crate::lock::{given_up, loss, not_acquired, say_left};
use crate::output::{json_text, line, say};
use crate::signals::Signals;

/// What is missing where the store answers, and says nothing of the election.
const DEAF: &str = "the store answers and nothing is heard of this election: access rules or a policy may refuse the \
                    subscription to its notifications, clients/statestore/+/+/+/command/notify/+";

pub(crate) async fn run(args: Elect) -> Result<ExitCode, Failure> {
    // A leader resigns whatever ends it.
    let mut signals = Signals::new()?.with_hangup()?;
    let store = connection::store(&args.common)?;
    let mut election = store.election(args.name.clone()).lease(args.lease);
    if let Some(candidate) = &args.candidate {
        election = election.name(candidate);
    }
    let failed = |error| Failure::request(error, &store);
    let begun = async {
        // Asked first, since a watch waits patiently where there is no store at all.
        election.leader().await?;
        election.watch().await
    };
    let Some(begun) = signals.unless_received(begun).await else { return Ok(ExitCode::SUCCESS) };
    let mut changes = begun.map_err(failed)?;
    let (stop, stopped) = watch::channel(args.candidate.is_none());
    let campaign = lead(&election, stopped);
    tokio::pin!(campaign);
    let (mut left, mut standing) = (args.count, args.candidate.is_some());
    let (mut is_known, mut is_deaf) = (false, false);
    let patience = tokio::time::sleep(args.common.timeout);
    tokio::pin!(patience);
    while left != Some(0) {
        tokio::select! {
            () = &mut patience, if !is_known => {
                if store.status().current() == Status::Online {
                    is_deaf = true;
                    break;
                }
                patience.as_mut().reset(tokio::time::Instant::now() + args.common.timeout);
                continue;
            }
            seen = changes.next() => match seen {
                Some(seen) => tokio::select! {
                    printed = print(&args, &seen) => printed?,
                    _ = signals.received() => break,
                },
                None => return Err(over(&changes, &store)),
            },
            ended = &mut campaign, if standing => {
                standing = false;
                ended.map_err(|error| not_acquired(error, &store))?;
            }
            _ = signals.received() => break,
        }
        is_known = true;
        left = left.map(|left| left - 1);
    }
    if standing {
        stop.send_replace(true);
        tokio::select! {
            ended = campaign => ended.map_err(|error| not_acquired(error, &store))?,
            () = given_up(&mut signals) => say_left(&args.name, args.lease),
        }
    }
    drop(changes);
    store.shutdown().await;
    if is_deaf { Err(Failure::bad_input(DEAF)) } else { Ok(ExitCode::SUCCESS) }
}

/// Why there is nothing more to tell.
fn over(changes: &HolderWatch, store: &StateStore) -> Failure {
    match changes.end() {
        Some(WatchEnd::Refused(error)) => Failure::refused(error),
        _ => Failure::stopped(store.status().current().reason()),
    }
}

/// Leads whenever it can, until it is told to stop or that is impossible.
async fn lead(election: &Election, mut stop: watch::Receiver<bool>) -> Result<(), LockError> {
    loop {
        let leadership = tokio::select! {
            leadership = election.campaign() => leadership?,
            _ = stop.wait_for(|stop| *stop) => return Ok(()),
        };
        tokio::select! {
            lost = leadership.lost() => say(leadership_lost(&lost)),
            _ = stop.wait_for(|stop| *stop) => {
                // When it is lost there is nothing to give back.
                let _ = leadership.resign().await;
                return Ok(());
            }
        }
    }
}

fn leadership_lost(lost: &LockLost) -> String {
    match lost {
        LockLost::Lost(reason) => format!("the leadership is lost: {}", loss(reason)),
        other => other.to_string(),
    }
}

async fn print(args: &Elect, seen: &HolderStatus) -> Result<(), Failure> {
    let name = match seen {
        HolderStatus::Held(holder) => one_line(holder.name()),
        HolderStatus::Free => "-".into(),
        HolderStatus::Unknown => "?".into(),
    };
    if args.common.output == Output::Raw {
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
