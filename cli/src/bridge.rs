//! `bridge`: sets keys from MQTT messages, and publishes the changes of keys.

mod echoes;
mod inbound;
mod outbound;
mod reconnection;
mod template;

use std::process::ExitCode;

use statestore_client::{ClientLink, Options};
use statestore_tokio::{LinkError, StateStore};

use crate::args::Bridge;
use crate::connection;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::keys::matches_every_key;
use crate::output;
use crate::signals::Signals;
use crate::sources::Endpoint;
use echoes::{Echoes, Route, SharedEchoes};
use inbound::Inbound;
use outbound::Outbound;
use template::Template;

/// User property of the messages that a bridge publishes. Its value is a random id of the process.
const MARK: &str = "statestore-bridge";

/// Suffix of the client id of the connection that receives messages.
const RECEIVER: &str = "-messages";

/// Suffix of the client id of the connection that publishes changes.
const PUBLISHER: &str = "-changes";

pub(crate) async fn run(args: Bridge) -> Result<ExitCode, Failure> {
    let key_of_topic = match (&args.topic, &args.key) {
        (Some(filter), Some(key)) => Some(Template::of_key(key, filter)?),
        _ => None,
    };
    if let Some(filter) = args.topic.as_deref().filter(|filter| is_reserved(filter)) {
        return Err(Failure::bad_input(format_args!(
            "--topic {filter}: these are messages of the store, which a bridge ignores; name \
             topics of your devices"
        )));
    }
    let topic_of_key = match (&args.keys, &args.publish) {
        (Some(pattern), Some(topic)) => {
            Some((check_pattern(&args, pattern)?, Template::of_topic(topic)?))
        }
        _ => None,
    };
    if args.value.as_ref().is_some_and(|pointer| !pointer.is_empty() && !pointer.starts_with('/')) {
        return Err(Failure::bad_input(
            "--value: a JSON pointer is empty or begins with a slash, such as /data/temperature",
        ));
    }
    let mut signals = Signals::new()?.with_hangup()?;
    let store = connection::store(&args.common)?;
    let mark = connection::unique_id("bridge");
    let route = topic_of_key.as_ref().filter(|_| key_of_topic.is_some());
    let route = route.map(|(pattern, topic)| Route::new(pattern, topic.clone()));
    let echoes = SharedEchoes::new(Echoes::new(route));
    let mut inbound = match key_of_topic {
        Some(template) => {
            let link = receiver(&args, &store)?;
            Some(Inbound::new(store.clone(), link, &args, template, &mark, echoes.clone()))
        }
        None => None,
    };
    let mut outbound = match topic_of_key {
        Some((pattern, template)) => {
            let options = options(&args, &store, PUBLISHER)?;
            let outbound = Outbound::new(&store, options, &args, pattern, template, mark, echoes);
            Some(outbound)
        }
        None => None,
    };
    let work = async {
        let set_keys = async {
            match &mut inbound {
                Some(inbound) => inbound.run().await,
                None => Ok(()),
            }
        };
        let publish = async {
            match &mut outbound {
                Some(outbound) => outbound.run().await,
                None => Ok(()),
            }
        };
        tokio::try_join!(set_keys, publish).map(drop)
    };
    let outcome = signals.unless_received(work).await;
    let has_failed = matches!(outcome, Some(Err(_)));
    let inbound_summary = inbound.as_ref().and_then(|inbound| inbound.summary(has_failed));
    let outbound_summary = outbound.as_ref().and_then(|outbound| outbound.summary(has_failed));
    for summary in [inbound_summary, outbound_summary].into_iter().flatten() {
        output::raw(summary.as_bytes())?;
    }
    outcome.transpose()?;
    let refused =
        [inbound.as_ref().map(Inbound::refused), outbound.as_ref().map(Outbound::refused)];
    if let Some(inbound) = inbound {
        inbound.close().await;
    }
    if let Some(outbound) = outbound {
        outbound.close().await;
    }
    let refused: u64 = refused.into_iter().flatten().sum();
    Ok(if refused > 0 { Exit::Refused } else { Exit::Success }.into())
}

/// Returns the pattern of --keys.
fn check_pattern<'a>(args: &Bridge, pattern: &'a str) -> Result<&'a str, Failure> {
    if matches_every_key(pattern) && !args.all_keys {
        return Err(Failure::bad_input(
            "--keys: this pattern matches every key, or every key of a length, also locks; name a \
             part of the keys, such as 'state/*', or add --all-keys",
        ));
    }
    Ok(pattern)
}

/// Options of a further connection.
fn options(args: &Bridge, store: &StateStore, suffix: &str) -> Result<Options, Failure> {
    let connection = &args.common.connection;
    let id = format!("{}{suffix}", store.client_id());
    let mut login = connection.login.clone();
    login.client_id = Some(id.clone());
    let options = connection::options(&connection.broker, &login, &id)?;
    Ok(connection::limit_connect_timeout(options, args.common.time_limit.timeout))
}

/// The connection that receives messages. It acknowledges each message when its key is set.
fn receiver(args: &Bridge, store: &StateStore) -> Result<ClientLink, Failure> {
    Ok(connection::link(options(args, store, RECEIVER)?, Endpoint::Broker).manual_acks(true))
}

/// Reason why work on one connection has ended.
enum Ended {
    /// The connection was lost, or could not be opened.
    Connection(LinkError),
    /// A new connection would not help.
    Failure(Failure),
}

/// Returns whether a topic belongs to the protocol of the store.
fn is_reserved(topic: &str) -> bool {
    topic.starts_with("clients/") || topic.starts_with("statestore/")
}
