//! Watches a key, or the keys that match a pattern, and prints every change.

use std::io::Write;
use std::process::ExitCode;

use bytes::Bytes;
use serde_json::json;
use statestore_proto::client::{WatchEnd, WatchEvent};
use statestore_tokio::{PatternEnd, PatternEvent, PatternWatch, StateStore};

use crate::args::{Output, Watch};
use crate::connection;
use crate::escape::{on_one_line, one_line, preview, printable};
use crate::failure::Failure;
use crate::keys;
use crate::output::{json_text, line, notice};
use crate::signals::Signals;

/// Printed once if no notification arrived within --timeout.
const NOT_YET: &str = "not watching yet: access rules or a policy may refuse the request or the \
    subscription to notifications; still trying";

pub(crate) async fn run(args: Watch) -> Result<ExitCode, Failure> {
    let mut signals = Signals::new()?;
    let (key, timeout) = (args.key.bytes()?, args.common.time_limit.timeout);
    if !args.pattern && key.iter().any(|byte| b"*?[".contains(byte)) {
        notice(format_args!(
            "watching one key named {}; to watch the keys that match, use --pattern",
            preview(&key)
        ));
    }
    let store = connection::store(&args.common)?;
    let printer =
        Printer { json: args.common.format.output == Output::Json, is_pattern: args.pattern, key };
    let begun = async {
        let reached = tokio::time::timeout(timeout, store.wait_connected()).await;
        let late = || {
            let last_error = store.status().current().link_error().cloned();
            Err(statestore_tokio::Error::NotSent { last_error })
        };
        reached.unwrap_or_else(|_| late()).map_err(Failure::request)?;
        Ok::<_, Failure>(match args.pattern {
            true => Source::Pattern(Box::new(store.watch_pattern(&printer.key))),
            false => {
                let watch = store.watch(&printer.key).await.map_err(Failure::request)?;
                Source::Key(watch, printer.key.clone())
            }
        })
    };
    let Some(begun) = signals.unless_received(begun).await else { return Ok(ExitCode::SUCCESS) };
    let mut watch = begun?;
    let (mut left, mut is_known) = (args.count, false);
    while left != Some(0) {
        let next = async {
            if is_known {
                return watch.next(&store).await;
            }
            match tokio::time::timeout(timeout, watch.next(&store)).await {
                Ok(event) => event,
                Err(_) => {
                    notice(NOT_YET);
                    watch.next(&store).await
                }
            }
        };
        let Some(event) = signals.unless_received(next).await else { break };
        let event = event?;
        let printed = async {
            if event == PatternEvent::Live && !is_known && !args.pattern {
                printer.state("absent", "absent").await?;
            }
            let trouble = store.status().current().reason().map(ToString::to_string);
            printer.print(&event, trouble.as_deref()).await
        };
        let Some(printed) = signals.unless_received(printed).await else { break };
        printed?;
        is_known = true;
        if matches!(event, PatternEvent::Changed { .. }) {
            left = left.map(|left| left - 1);
        }
    }
    drop(watch);
    store.shutdown().await;
    Ok(ExitCode::SUCCESS)
}

/// What is watched.
enum Source {
    Key(statestore_tokio::Watch, Bytes),
    Pattern(Box<PatternWatch>),
}

impl Source {
    /// Returns the next event. Its end is an error.
    async fn next(&mut self, store: &StateStore) -> Result<PatternEvent, Failure> {
        let event = match self {
            Self::Pattern(watch) => watch.next().await,
            Self::Key(watch, key) => match watch.next().await {
                Some(WatchEvent::Changed { value, version }) => {
                    Some(PatternEvent::Changed { key: key.clone(), value, version })
                }
                Some(WatchEvent::Live) => Some(PatternEvent::Live),
                Some(WatchEvent::Gap) => Some(PatternEvent::Gap),
                Some(WatchEvent::Ended(WatchEnd::Refused(error))) => {
                    return Err(Failure::refused(&error));
                }
                _ => None,
            },
        };
        match event {
            Some(PatternEvent::Ended(PatternEnd::Failed(error))) => Err(keys::failure(error)),
            Some(PatternEvent::Ended(end)) => Err(Failure::bad_input(end)),
            Some(event) => Ok(event),
            None => Err(Failure::stopped(&store.status().current())),
        }
    }
}

struct Printer {
    json: bool,
    is_pattern: bool,
    /// The key or the pattern.
    key: Bytes,
}

impl Printer {
    /// Prints an event. With text output, values go to standard output, escaped to one line each,
    /// and other events to standard error.
    async fn print(&self, event: &PatternEvent, trouble: Option<&str>) -> Result<(), Failure> {
        match event {
            PatternEvent::Changed { key, value, version } if self.json => {
                let what = if value.is_some() { "set" } else { "deleted" };
                line(json_text(what, key, value.as_deref(), version.as_ref())).await
            }
            PatternEvent::Changed { key, value: Some(value), .. } if self.is_pattern => {
                line(format!("{}\t{}\n", one_line(key), one_line(value))).await
            }
            PatternEvent::Changed { value: Some(value), .. } => {
                line(format!("{}\n", one_line(value))).await
            }
            PatternEvent::Changed { key, .. } if self.is_pattern => {
                note(&format!("deleted: {}", one_line(key))).await
            }
            PatternEvent::Changed { .. } => note("deleted").await,
            PatternEvent::Live => {
                self.state("live", "live: this is the current state, changes follow").await
            }
            PatternEvent::Gap => {
                let reason = trouble.map(|trouble| format!(" ({})", on_one_line(trouble)));
                let reason = reason.unwrap_or_default();
                self.state("gap", &format!("gap: changes may be missed from here on{reason}")).await
            }
            _ => Ok(()),
        }
    }

    /// Prints a state of the watch.
    async fn state(&self, result: &str, text: &str) -> Result<(), Failure> {
        match (self.json, self.is_pattern) {
            (false, _) => note(text).await,
            (true, false) => line(json_text(result, &self.key, None, None)).await,
            (true, true) => {
                let pattern = String::from_utf8_lossy(&self.key);
                let object = json!({ "result": result, "pattern": pattern });
                line(printable(&format!("{object}\n"))).await
            }
        }
    }
}

/// Prints a line on standard error, in order with the values. Errors of writing are ignored.
async fn note(text: &str) -> Result<(), Failure> {
    let text = format!("{text}\n");
    let written =
        tokio::task::spawn_blocking(move || _ = std::io::stderr().write_all(text.as_bytes()));
    written.await.map_err(Failure::system)
}
