//! Who leads an election, as it changes; and standing for it.

use std::process::ExitCode;

use statestore_proto::lock::Observed;
use statestore_tokio::{Election, LockError};

use crate::args::{Elect, Output};
use crate::connection;
use crate::failure::Failure;
use crate::output::{json_line, raw};
use crate::serve::interrupted;

pub(crate) async fn run(args: Elect) -> Result<ExitCode, Failure> {
    let store = connection::store(&args.common)?;
    let mut election = store.election(args.name.clone()).lease(args.lease);
    if let Some(candidate) = &args.candidate {
        election = election.name(candidate);
    }
    let failed = |error| Failure::request(error, store.last_failure().as_deref());
    // Asked first, since a watch waits patiently where there is no store at all.
    election.leader().await.map_err(failed)?;
    let mut changes = election.observe().await.map_err(failed)?;
    let stands = args.candidate.is_some();
    let campaign =
        async { if stands { lead(&election).await } else { std::future::pending().await } };
    tokio::pin!(campaign);
    let mut left = args.count;
    while left != Some(0) {
        let seen = tokio::select! {
            seen = changes.next() => seen,
            error = &mut campaign => return Err(Failure::bad_input(error)),
            stop = interrupted() => {
                stop?;
                break;
            }
        };
        let Some(seen) = seen else { break };
        print(&args, &seen)?;
        left = left.map(|left| left - 1);
    }
    drop(changes);
    Ok(ExitCode::SUCCESS)
}

/// Leads whenever it can, until that is impossible.
async fn lead(election: &Election) -> LockError {
    loop {
        match election.campaign().await {
            Ok(leadership) => eprintln!("statestore: {}", leadership.lost().await),
            Err(error) => return error,
        }
    }
}

fn print(args: &Elect, seen: &Observed) -> Result<(), Failure> {
    let name = match seen {
        Observed::Held(holder) => String::from_utf8_lossy(holder.name()),
        Observed::Free => "-".into(),
        Observed::Unknown => "?".into(),
    };
    if args.common.output == Output::Raw {
        return raw(format!("{name}\n").as_bytes());
    }
    match seen {
        Observed::Held(holder) => {
            json_line("leader", &args.name, Some(holder.name()), holder.version())
        }
        Observed::Free => json_line("none", &args.name, None, None),
        Observed::Unknown => json_line("unknown", &args.name, None, None),
    }
}
