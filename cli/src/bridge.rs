//! `bridge`: sets keys from MQTT messages.

mod template;

use std::collections::VecDeque;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use statestore_client::ClientLink;
use statestore_proto::transport::{Delivery, SubscribeToken, Transmit};
use statestore_tokio::{
    AsIncoming as _, Error, Link as _, LinkError, LinkErrorKind, LinkEvent, StateStore,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::args::Bridge;
use crate::connection;
use crate::data::requests;
use crate::escape::one_line;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::keys::READING_MAX;
use crate::output::{self, notice};
use crate::signals::Signals;
use template::Template;

/// Suffix of the client id of the connection that receives messages.
const SUFFIX: &str = "-messages";

/// Maximum number of messages that are not acknowledged yet.
const HELD_MAX: usize = 256;

/// Pause before a connection or a request that failed is repeated.
const RETRY: Duration = Duration::from_secs(1);

/// Pause between two notices about skipped or refused messages.
const NOTICE_INTERVAL: Duration = Duration::from_secs(10);

pub(crate) async fn run(args: Bridge) -> Result<ExitCode, Failure> {
    let template = Template::parse(&args.key, &args.topic).map_err(Failure::bad_input)?;
    if args.value.as_ref().is_some_and(|pointer| !pointer.is_empty() && !pointer.starts_with('/')) {
        return Err(Failure::bad_input(
            "--value: a JSON pointer is empty or begins with a slash, for example /data/temperature",
        ));
    }
    let mut signals = Signals::new()?.with_hangup()?;
    let store = connection::store(&args.common)?;
    let mut link = link(&args, &store)?;
    let mut bridge = Running::new(store, args, template);
    let outcome = signals.unless_received(bridge.run(&mut link)).await;
    if bridge.received > 0 || !matches!(outcome, Some(Err(_))) {
        output::raw(bridge.summary().as_bytes())?;
    }
    outcome.transpose()?;
    link.disconnect().await;
    Ok(if bridge.refused > 0 { Exit::Refused } else { Exit::Success }.into())
}

/// The connection that receives messages. It acknowledges each message when its key is set.
fn link(args: &Bridge, store: &StateStore) -> Result<ClientLink, Failure> {
    let connection = &args.common.connection;
    let id = format!("{}{SUFFIX}", store.client_id());
    let mut login = connection.login.clone();
    login.client_id = Some(id.clone());
    let options = connection::options(&connection.broker, &login, &id)?;
    Ok(connection::link(options).manual_acks(true))
}

/// A message that is not acknowledged.
struct Held {
    delivery: Option<Delivery>,
    number: u64,
    is_done: bool,
}

/// A change of a key.
struct Change {
    number: u64,
    key: Bytes,
    /// `None` deletes the key.
    value: Option<Bytes>,
}

/// A bridge in progress.
struct Running {
    store: StateStore,
    args: Bridge,
    template: Template,
    /// In order of arrival, since messages are acknowledged in that order.
    held: VecDeque<Held>,
    /// Waits for the previous write of its key.
    next: Option<Change>,
    busy: Vec<Bytes>,
    writes: JoinSet<(Change, Result<(), Error>)>,
    received: u64,
    set: u64,
    deleted: u64,
    skipped: u64,
    refused: u64,
    noticed: Option<Instant>,
}

impl Running {
    fn new(store: StateStore, args: Bridge, template: Template) -> Self {
        Self {
            store,
            args,
            template,
            held: VecDeque::new(),
            next: None,
            busy: Vec::new(),
            writes: JoinSet::new(),
            received: 0,
            set: 0,
            deleted: 0,
            skipped: 0,
            refused: 0,
            noticed: None,
        }
    }

    /// Runs until --count, or a permanent error.
    async fn run(&mut self, link: &mut ClientLink) -> Result<(), Failure> {
        let mut was_connected = false;
        loop {
            let failed = match self.run_connection(link, &mut was_connected).await {
                Ok(()) => return Ok(()),
                Err(Ended::Failure(failure)) => return Err(failure),
                Err(Ended::Connection(error)) => error,
            };
            if !failed.is_transient() || !was_connected {
                let status = statestore_tokio::Status::Offline { last_error: Some(failed) };
                return Err(Failure::stopped(&status));
            }
            notice(format_args!("the connection that receives messages was lost: {failed}"));
            // Unacknowledged messages are redelivered, if the broker keeps the session.
            self.held.iter_mut().for_each(|held| held.delivery = None);
            sleep(RETRY).await;
        }
    }

    async fn run_connection(
        &mut self,
        link: &mut ClientLink,
        was_connected: &mut bool,
    ) -> Result<(), Ended> {
        let limit = self.args.common.timeout;
        let connected = timeout(limit, link.connect()).await;
        match connected {
            Ok(connected) => _ = connected.map_err(Ended::Connection)?,
            Err(_) if *was_connected => {
                let error = LinkError::new(LinkErrorKind::TimedOut, "no connection in time");
                return Err(Ended::Connection(error));
            }
            Err(_) => {
                return Err(Ended::Failure(Failure::unreachable(
                    "no connection to the broker in time; check --broker and --timeout",
                )));
            }
        }
        let (filter, token) = (Arc::from(&*self.args.topic), SubscribeToken::from_raw(1));
        // The queue of a new connection is empty.
        let _ = link.try_send(Transmit::Subscribe { filter, token });
        loop {
            self.acknowledge(link);
            self.start_write();
            if self.args.count.is_some_and(|count| self.received >= count) && self.held.is_empty() {
                return Ok(());
            }
            let can_receive = self.next.is_none()
                && self.held.len() < HELD_MAX
                && self.args.count.is_none_or(|count| self.received < count);
            tokio::select! {
                event = link.next_event(can_receive) => match event.map_err(Ended::Connection)? {
                    LinkEvent::Subscribed(_, reason) if reason.is_error() => {
                        return Err(Ended::Failure(Failure::bad_input(format_args!(
                            "--topic {}: the broker refused the subscription: {reason}; check the \
                             filter, and that this client may subscribe to it",
                            self.args.topic
                        ))));
                    }
                    LinkEvent::Subscribed(..) if !*was_connected => {
                        *was_connected = true;
                        notice(format_args!("bridging {}", self.args.topic));
                    }
                    LinkEvent::Message(message) => {
                        if let Some(incoming) = message.as_incoming() {
                            let (topic, payload) = (incoming.topic, incoming.payload.clone());
                            self.receive(topic, &payload, incoming.delivery);
                        }
                    }
                    _ => {}
                },
                written = self.writes.join_next(), if !self.writes.is_empty() => {
                    if let Some(written) = written {
                        let written = written.map_err(|error| Ended::Failure(Failure::system(error)))?;
                        self.settle(written).map_err(Ended::Failure)?;
                    }
                }
            }
        }
    }

    /// Acknowledges the messages at the front whose keys are set.
    fn acknowledge(&mut self, link: &mut ClientLink) {
        while self.held.front().is_some_and(|held| held.is_done) {
            let Some(held) = self.held.front() else { return };
            if let Some(delivery) = held.delivery
                && link.try_send(Transmit::Acknowledge(delivery)).is_err()
            {
                // Again after the next event of the link.
                return;
            }
            self.held.pop_front();
        }
    }

    fn receive(&mut self, topic: &str, payload: &Bytes, delivery: Option<Delivery>) {
        // Responses and notifications of the store would cause further ones.
        if topic.starts_with("clients/") || topic.starts_with("statestore/") {
            self.held.push_back(Held { delivery, number: 0, is_done: true });
            return;
        }
        self.received += 1;
        let number = self.received;
        let change = self.template.fill(topic).and_then(|key| {
            let value = match (payload.is_empty(), &self.args.value) {
                (true, _) => None,
                (false, None) => Some(payload.clone()),
                (false, Some(pointer)) => Some(part(payload, pointer)?),
            };
            Ok(Change { number, key: key.into(), value })
        });
        match change {
            Ok(change) => {
                self.held.push_back(Held { delivery, number, is_done: false });
                self.next = Some(change);
            }
            Err(reason) => {
                self.held.push_back(Held { delivery, number, is_done: true });
                self.skipped += 1;
                let topic = one_line(topic.as_bytes()).chars().take(200).collect::<String>();
                self.notice_rate_limited(format_args!("message of {topic} skipped: {reason}"));
            }
        }
    }

    /// Prints a notice unless there was one just before.
    fn notice_rate_limited(&mut self, text: impl std::fmt::Display) {
        if self.noticed.is_none_or(|noticed| noticed.elapsed() >= NOTICE_INTERVAL) {
            self.noticed = Some(Instant::now());
            notice(text);
        }
    }

    fn start_write(&mut self) {
        let is_free = |change: &mut Change| {
            !self.busy.contains(&change.key) && self.writes.len() < READING_MAX
        };
        if let Some(change) = self.next.take_if(is_free) {
            self.busy.push(change.key.clone());
            self.write(change, Duration::ZERO);
        }
    }

    fn write(&mut self, change: Change, pause: Duration) {
        let (store, expires) = (self.store.clone(), self.args.expires);
        self.writes.spawn(async move {
            sleep(pause).await;
            let result = match &change.value {
                Some(value) => {
                    let set = store.set(change.key.clone(), value.clone());
                    let set = match expires {
                        Some(expires) => set.expires_after(expires),
                        None => set,
                    };
                    set.await.map(drop)
                }
                None => store.del(change.key.clone()).await.map(drop),
            };
            (change, result)
        });
    }

    fn settle(&mut self, (change, result): (Change, Result<(), Error>)) -> Result<(), Failure> {
        match result {
            Ok(()) if change.value.is_some() => self.set += 1,
            Ok(()) => self.deleted += 1,
            Err(error @ (Error::Refused { .. } | Error::Invalid(_))) => {
                self.refused += 1;
                let failure = requests::key_failure(&change.key, error);
                self.notice_rate_limited(failure);
            }
            Err(error @ Error::Closed(_)) => return Err(Failure::request(error)),
            Err(error) => {
                let failure = Failure::request(error);
                self.notice_rate_limited(format_args!("{failure}; trying again"));
                self.write(change, RETRY);
                return Ok(());
            }
        }
        self.busy.retain(|key| *key != change.key);
        if let Some(held) = self.held.iter_mut().find(|held| held.number == change.number) {
            held.is_done = true;
        }
        Ok(())
    }

    fn summary(&self) -> String {
        let Self { set, deleted, skipped, refused, .. } = self;
        format!("set {set}, deleted {deleted}, skipped {skipped}, refused {refused}\n")
    }
}

/// The end of a connection.
enum Ended {
    Connection(LinkError),
    Failure(Failure),
}

/// The value at a JSON pointer.
fn part(payload: &[u8], pointer: &str) -> Result<Bytes, &'static str> {
    let json: Value = serde_json::from_slice(payload).map_err(|_| "the payload is not JSON")?;
    match json.pointer(pointer) {
        None | Some(Value::Null) => Err("the payload has no value at --value"),
        Some(Value::String(text)) => Ok(text.clone().into()),
        Some(other) => Ok(other.to_string().into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointer_selects_a_part_of_the_payload() {
        let payload = br#"{"data": {"t": 21.5, "unit": "C", "~/": [true]}, "none": null}"#;
        for (pointer, expected) in [
            ("/data/t", Ok("21.5")),
            ("/data/unit", Ok("C")),
            ("/data/~0~1/0", Ok("true")),
            ("/data/~0~1", Ok("[true]")),
            ("/none", Err("the payload has no value at --value")),
            ("/data/x", Err("the payload has no value at --value")),
        ] {
            let found = part(payload, pointer);
            assert_eq!(found, expected.map(Bytes::from), "{pointer}");
        }
        assert!(part(b"{", "").is_err() && part(b"[[", "/0").is_err());
        assert_eq!(part(b"7", ""), Ok("7".into()));
        let deep = vec![b'['; 10_000];
        assert_eq!(part(&deep, ""), Err("the payload is not JSON"));
    }
}
