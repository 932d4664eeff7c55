//! Watches a key and prints every change.

use std::io::Write;
use std::process::ExitCode;

use statestore_proto::client::{WatchEnd, WatchEvent};

use crate::args::{Output, Watch};
use crate::connection;
use crate::escape::{on_one_line, one_line};
use crate::failure::Failure;
use crate::output::{json_text, line, notice};
use crate::signals::Signals;

/// Printed once if no notification arrived within --timeout.
const NOT_YET: &str = "not watching yet: access rules or a policy may refuse the request or the \
    subscription to notifications; still trying";

/// Characters that have a meaning in patterns of `statestore keys`.
const WILDCARDS: [char; 3] = ['*', '?', '['];

pub(crate) async fn run(args: Watch) -> Result<ExitCode, Failure> {
    let mut signals = Signals::new()?;
    if args.key.contains(WILDCARDS) {
        notice(format_args!("watching one key named {:?}; patterns are not supported", args.key));
    }
    let store = connection::store(&args.common)?;
    let failed = Failure::request;
    let begun = async {
        let reached =
            tokio::time::timeout(args.common.time_limit.timeout, store.wait_connected()).await;
        let late = || {
            let last_error = store.status().current().link_error().cloned();
            Err(statestore_tokio::Error::NotSent { last_error })
        };
        reached.unwrap_or_else(|_| late()).map_err(failed)?;
        store.watch(args.key.clone()).await.map_err(failed)
    };
    let Some(begun) = signals.unless_received(begun).await else { return Ok(ExitCode::SUCCESS) };
    let mut watch = begun?;
    let (mut left, mut is_known) = (args.count, false);
    while left != Some(0) {
        let next = async {
            if is_known {
                return watch.next().await;
            }
            match tokio::time::timeout(args.common.time_limit.timeout, watch.next()).await {
                Ok(event) => event,
                Err(_) => {
                    notice(NOT_YET);
                    watch.next().await
                }
            }
        };
        let Some(event) = signals.unless_received(next).await else { break };
        match event {
            Some(WatchEvent::Ended(WatchEnd::Refused(error))) => {
                return Err(Failure::refused(&error));
            }
            Some(WatchEvent::Ended(WatchEnd::Stopped)) | None => {
                return Err(Failure::stopped(&store.status().current()));
            }
            Some(event) => {
                let printed = async {
                    if event == WatchEvent::Live && !is_known {
                        absent(&args).await?;
                    }
                    let trouble = store.status().current().reason().map(ToString::to_string);
                    print(&args, &event, trouble.as_deref()).await
                };
                let Some(printed) = signals.unless_received(printed).await else { break };
                printed?;
                is_known = true;
                if matches!(event, WatchEvent::Changed { .. }) {
                    left = left.map(|left| left - 1);
                }
            }
        }
    }
    drop(watch);
    store.shutdown().await;
    Ok(ExitCode::SUCCESS)
}

/// Prints an event. With text output, values go to standard output, escaped to one line each, and
/// other events to standard error.
async fn print(args: &Watch, event: &WatchEvent, trouble: Option<&str>) -> Result<(), Failure> {
    let json = args.common.format.output == Output::Json;
    match event {
        WatchEvent::Changed { value, version } if json => {
            let what = if value.is_some() { "set" } else { "deleted" };
            line(json_text(what, &args.key, value.as_deref(), version.as_ref())).await
        }
        WatchEvent::Changed { value: Some(value), .. } => {
            line(format!("{}\n", one_line(value))).await
        }
        WatchEvent::Live if json => line(json_text("live", &args.key, None, None)).await,
        WatchEvent::Gap if json => line(json_text("gap", &args.key, None, None)).await,
        WatchEvent::Changed { value: None, .. } => note("deleted").await,
        WatchEvent::Live => note("live: this is the current state, changes follow").await,
        WatchEvent::Gap => match trouble {
            Some(trouble) => {
                let trouble = on_one_line(trouble);
                note(&format!("gap: changes may be missed from here on ({trouble})")).await
            }
            None => note("gap: changes may be missed from here on").await,
        },
        _ => Ok(()),
    }
}

/// Prints that the key is absent at the start.
async fn absent(args: &Watch) -> Result<(), Failure> {
    match args.common.format.output {
        Output::Json => line(json_text("absent", &args.key, None, None)).await,
        Output::Text => note("absent").await,
    }
}

/// Prints a line on standard error, in order with the values. Errors of writing are ignored.
async fn note(text: &str) -> Result<(), Failure> {
    let text = format!("{text}\n");
    let written =
        tokio::task::spawn_blocking(move || _ = std::io::stderr().write_all(text.as_bytes()));
    written.await.map_err(Failure::system)
}
