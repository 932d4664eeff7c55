//! Who leads an election, as it changes; and standing for it.

use std::process::ExitCode;

use statestore_proto::lock::HolderStatus;
use statestore_tokio::{Election, LockError, LockLost};
use tokio::sync::watch;

use crate::args::{Elect, Output};
use crate::connection;
use crate::failure::Failure;
use crate::output::{json_line, raw};
use crate::serve::Signals;

pub(crate) async fn run(args: Elect) -> Result<ExitCode, Failure> {
    let store = connection::store(&args.common)?;
    let mut election = store.election(args.name.clone()).lease(args.lease);
    if let Some(candidate) = &args.candidate {
        election = election.name(candidate);
    }
    let failed = |error| Failure::request(error, store.status().current().reason());
    // Asked first, since a watch waits patiently where there is no store at all.
    election.leader().await.map_err(failed)?;
    let mut changes = election.watch().await.map_err(failed)?;
    let (stop, stopped) = watch::channel(args.candidate.is_none());
    let campaign = lead(&election, stopped);
    tokio::pin!(campaign);
    let mut signals = Signals::new()?;
    let (mut left, mut standing) = (args.count, args.candidate.is_some());
    while left != Some(0) {
        tokio::select! {
            seen = changes.next() => match seen {
                Some(seen) => print(&args, &seen)?,
                None => break,
            },
            ended = &mut campaign, if standing => {
                standing = false;
                ended.map_err(Failure::bad_input)?;
            }
            () = signals.received() => break,
        }
        left = left.map(|left| left - 1);
    }
    if standing {
        stop.send_replace(true);
        campaign.await.map_err(Failure::bad_input)?;
    }
    drop(changes);
    store.shutdown().await;
    Ok(ExitCode::SUCCESS)
}

/// Leads whenever it can, until it is told to stop or that is impossible.
async fn lead(election: &Election, mut stop: watch::Receiver<bool>) -> Result<(), LockError> {
    loop {
        let leadership = tokio::select! {
            leadership = election.campaign() => leadership?,
            _ = stop.wait_for(|stop| *stop) => return Ok(()),
        };
        tokio::select! {
            lost = leadership.lost() => eprintln!("statestore: {}", leadership_lost(&lost)),
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
        LockLost::Lost(reason) => format!("the leadership is lost: {reason}"),
        other => other.to_string(),
    }
}

fn print(args: &Elect, seen: &HolderStatus) -> Result<(), Failure> {
    let name = match seen {
        HolderStatus::Held(holder) => String::from_utf8_lossy(holder.name()),
        HolderStatus::Free => "-".into(),
        HolderStatus::Unknown => "?".into(),
    };
    if args.common.output == Output::Raw {
        return raw(format!("{name}\n").as_bytes());
    }
    match seen {
        HolderStatus::Held(holder) => {
            json_line("leader", &args.name, Some(holder.name()), holder.version())
        }
        HolderStatus::Free => json_line("none", &args.name, None, None),
        HolderStatus::Unknown => json_line("unknown", &args.name, None, None),
    }
}
