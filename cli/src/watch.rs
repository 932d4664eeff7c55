//! Every change of a key, until interrupted.

use std::io::Write;
use std::process::ExitCode;

use statestore_proto::client::{WatchEnd, WatchEvent};
use statestore_proto::message::ServiceError;

use crate::args::{Output, Watch};
use crate::connection;
use crate::failure::Failure;
use crate::output::{json_line, raw};
use crate::serve::interrupted;

pub(crate) async fn run(args: Watch) -> Result<ExitCode, Failure> {
    let store = connection::store(&args.common)?;
    let failed = |error| Failure::request(error, store.status().current().reason());
    let reached = tokio::time::timeout(args.common.timeout, store.connected()).await;
    reached.unwrap_or(Err(statestore_tokio::Error::NotSent)).map_err(failed)?;
    let mut watch = store.watch(args.key.clone()).await.map_err(failed)?;
    let (mut left, mut is_known) = (args.count, false);
    while left != Some(0) {
        let event = tokio::select! {
            event = watch.next() => event,
            signal = interrupted() => {
                signal?;
                break;
            }
        };
        match event {
            Some(WatchEvent::Ended(WatchEnd::Refused(error))) => return Err(refused(&error)),
            Some(WatchEvent::Ended(WatchEnd::Stopped)) | None => break,
            Some(event) => {
                if event == WatchEvent::Live && !is_known {
                    absent(&args)?;
                }
                is_known = true;
                print(&args, &event)?;
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

fn refused(error: &ServiceError<bytes::Bytes>) -> Failure {
    Failure::bad_input(format_args!("the store refused: {error}"))
}

/// Raw output is a line for each change: the value, escaped so that it stays one line; what is no value goes to
/// standard error.
fn print(args: &Watch, event: &WatchEvent) -> Result<(), Failure> {
    let json = args.common.output == Output::Json;
    match event {
        WatchEvent::Changed { value, version } if json => {
            let what = if value.is_some() { "set" } else { "deleted" };
            json_line(what, &args.key, value.as_deref(), version.as_ref())
        }
        WatchEvent::Changed { value: Some(value), .. } => {
            raw(format!("{}\n", escaped(value)).as_bytes())
        }
        WatchEvent::Live if json => json_line("live", &args.key, None, None),
        WatchEvent::Gap if json => json_line("gap", &args.key, None, None),
        WatchEvent::Changed { value: None, .. } => note("deleted"),
        WatchEvent::Live => note("live: that is current, changes follow"),
        WatchEvent::Gap => note("gap: changes may be missed from here on"),
        WatchEvent::Ended(_) => Ok(()),
    }
}

/// What is so when a watch begins without a value.
fn absent(args: &Watch) -> Result<(), Failure> {
    match args.common.output {
        Output::Json => json_line("absent", &args.key, None, None),
        Output::Raw => note("absent"),
    }
}

fn note(text: &str) -> Result<(), Failure> {
    writeln!(std::io::stderr(), "{text}").map_err(Failure::output)
}

fn escaped(value: &[u8]) -> String {
    match std::str::from_utf8(value) {
        Ok(text) if !text.contains(char::is_control) => text.to_owned(),
        _ => value.escape_ascii().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_stays_one_line() {
        assert_eq!(escaped("21 °C".as_bytes()), "21 °C");
        assert_eq!(escaped(b"two\nlines"), "two\\nlines");
        assert_eq!(escaped(&[0xff]), "\\xff");
    }
}
