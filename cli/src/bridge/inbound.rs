//! Sets keys from MQTT messages.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use statestore_client::{ClientLink, Message};
use statestore_proto::transport::{Delivery, SubscribeToken, Transmit};
use statestore_tokio::{AsIncoming as _, Error, Link as _, LinkEvent, StateStore};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::echoes::{SharedEchoes, Write};
use super::reconnection::Reconnection;
use super::template::Template;
use super::{Ended, MARK, is_reserved};
use crate::args::Bridge;
use crate::escape::preview;
use crate::failure::Failure;
use crate::keys::REQUESTS_MAX;
use crate::notices::Notices;
use crate::output::notice;
use crate::refusals::{self, RETRY};

/// Maximum number of messages that are not acknowledged. They are acknowledged in order, so they
/// wait for the slowest write. It is less than the Receive Maximum, so the broker does not stop
/// sending before `bridge` stops reading.
const HELD_MAX: usize = 256;

/// A message that is not acknowledged.
struct Held {
    /// `None` after the connection was lost: the broker delivers the message again.
    delivery: Option<Delivery>,
    /// Zero for a message that is ignored.
    number: u64,
    /// Set if the key is set, or the message was skipped, or its write was refused.
    is_done: bool,
}

/// A change of a key.
struct Change {
    /// Number of the message.
    number: u64,
    topic: String,
    key: Bytes,
    /// `None` deletes the key.
    value: Option<Bytes>,
    /// Refusals so far.
    refusals: u32,
}

/// The direction from topics to keys.
pub(super) struct Inbound {
    store: StateStore,
    link: ClientLink,
    filter: Arc<str>,
    template: Template,
    /// JSON pointer to the value.
    pointer: Option<String>,
    expires: Option<Duration>,
    count: Option<u64>,
    accepts_bridged: bool,
    /// Mark of this process.
    mark: String,
    echoes: SharedEchoes,
    reconnection: Reconnection,
    /// In order of arrival, since messages are acknowledged in that order.
    held: VecDeque<Held>,
    /// Waits for the previous write of its key, or for the end of another write.
    next: Option<Change>,
    /// Keys with a write in flight, at most [`REQUESTS_MAX`].
    busy: Vec<Bytes>,
    writes: JoinSet<(Change, Result<Option<Write>, Error>)>,
    received: u64,
    set: u64,
    deleted: u64,
    skipped: u64,
    refused: u64,
    notices: Notices,
}

impl Inbound {
    pub(super) fn new(
        store: StateStore,
        link: ClientLink,
        args: &Bridge,
        template: Template,
        mark: &str,
        echoes: SharedEchoes,
    ) -> Self {
        Self {
            store,
            link,
            filter: args.topic.as_deref().unwrap_or_default().into(),
            template,
            pointer: args.value.clone(),
            expires: args.expires,
            count: args.count,
            accepts_bridged: args.accept_bridged,
            mark: mark.to_owned(),
            echoes,
            reconnection: Reconnection::new("receives messages", args.common.time_limit.timeout),
            held: VecDeque::new(),
            next: None,
            busy: Vec::new(),
            writes: JoinSet::new(),
            received: 0,
            set: 0,
            deleted: 0,
            skipped: 0,
            refused: 0,
            notices: Notices::default(),
        }
    }

    /// Number of writes that the store refused.
    pub(super) const fn refused(&self) -> u64 {
        self.refused
    }

    /// The results; `None` if the bridge failed before it received anything.
    pub(super) fn summary(&self, has_failed: bool) -> Option<String> {
        let Self { set, deleted, skipped, refused, .. } = self;
        let text = format!("set {set}, deleted {deleted}, skipped {skipped}, refused {refused}\n");
        (self.received > 0 || !has_failed).then_some(text)
    }

    pub(super) async fn close(mut self) {
        self.link.disconnect().await;
    }

    /// Runs until --count, or a permanent error.
    pub(super) async fn run(&mut self) -> Result<(), Failure> {
        loop {
            match self.run_connection().await {
                Ok(()) => return Ok(()),
                Err(Ended::Failure(failure)) => return Err(failure),
                Err(Ended::Connection(error)) => self.reconnection.retry(error).await?,
            }
            // Unacknowledged messages are redelivered, if the broker keeps the session.
            self.held.iter_mut().for_each(|held| held.delivery = None);
        }
    }

    async fn run_connection(&mut self) -> Result<(), Ended> {
        let connected = self.reconnection.attempt(self.link.connect()).await;
        connected.map_err(Ended::Connection)?;
        let (filter, token) = (Arc::clone(&self.filter), SubscribeToken::from_raw(1));
        // The queue of a new connection is empty.
        let _ = self.link.try_send(Transmit::Subscribe { filter, token });
        loop {
            self.acknowledge();
            self.start_write();
            if self.count.is_some_and(|count| self.received >= count) && self.held.is_empty() {
                return Ok(());
            }
            let can_receive = self.next.is_none()
                && self.held.len() < HELD_MAX
                && self.count.is_none_or(|count| self.received < count);
            tokio::select! {
                event = self.link.next_event(can_receive) => {
                    match event.map_err(Ended::Connection)? {
                        LinkEvent::Subscribed(_, reason) if reason.is_error() => {
                            return Err(Ended::Failure(Failure::bad_input(format_args!(
                                "--topic {}: the broker refused the subscription: {reason}; check \
                                 the filter, and that this client may subscribe to it",
                                self.filter
                            ))));
                        }
                        LinkEvent::Subscribed(..) => {
                            let is_first = self.reconnection.record_connection();
                            if is_first {
                                notice(format_args!("bridging {}", self.filter));
                            }
                        }
                        LinkEvent::Message(received) => {
                            let message = received.message();
                            let Some(incoming) = received.as_incoming() else { continue };
                            let (topic, payload) = (incoming.topic, incoming.payload.clone());
                            self.receive(topic, &payload, incoming.delivery, mark_of(message));
                        }
                        _ => {}
                    }
                }
                written = self.writes.join_next(), if !self.writes.is_empty() => {
                    if let Some(written) = written {
                        let written = written.map_err(Failure::system).map_err(Ended::Failure)?;
                        self.settle(written).map_err(Ended::Failure)?;
                    }
                }
            }
        }
    }

    /// Acknowledges the messages at the front that are done.
    fn acknowledge(&mut self) {
        while let Some(held) = self.held.front().filter(|held| held.is_done) {
            if let Some(delivery) = held.delivery
                && self.link.try_send(Transmit::Acknowledge(delivery)).is_err()
            {
                // Again after the next event of the link.
                return;
            }
            self.held.pop_front();
        }
    }

    fn receive(
        &mut self,
        topic: &str,
        payload: &Bytes,
        delivery: Option<Delivery>,
        mark: Option<&str>,
    ) {
        // A write causes a response and notifications, and a change that this process publishes. If
        // these set keys, they would cause further ones.
        if is_reserved(topic) || mark == Some(&self.mark) {
            self.held.push_back(Held { delivery, number: 0, is_done: true });
            return;
        }
        self.received += 1;
        let number = self.received;
        match self.change_of(number, topic, payload, mark.is_some()) {
            Ok(change) => {
                self.held.push_back(Held { delivery, number, is_done: false });
                self.next = Some(change);
            }
            Err(reason) => {
                self.held.push_back(Held { delivery, number, is_done: true });
                self.skipped += 1;
                let topic = preview(topic.as_bytes());
                self.notices.print(reason, format_args!("message of {topic} skipped: {reason}"));
            }
        }
    }

    /// Returns the change that a message causes, or the reason to skip it.
    fn change_of(
        &self,
        number: u64,
        topic: &str,
        payload: &Bytes,
        is_bridged: bool,
    ) -> Result<Change, &'static str> {
        if is_bridged && !self.accepts_bridged {
            return Err("another bridge has published it; --accept-bridged sets its key too");
        }
        let key = self.template.fill(topic)?;
        let value = match (payload.is_empty(), &self.pointer) {
            (true, _) => None,
            (false, None) => Some(payload.clone()),
            (false, Some(pointer)) => Some(value_at(payload, pointer)?),
        };
        Ok(Change { number, topic: topic.to_owned(), key: key.into(), value, refusals: 0 })
    }

    fn start_write(&mut self) {
        let is_free = |change: &mut Change| {
            !self.busy.contains(&change.key) && self.writes.len() < REQUESTS_MAX
        };
        if let Some(change) = self.next.take_if(is_free) {
            self.busy.push(change.key.clone());
            self.echoes.begin(&change.key, &change.topic);
            self.write(change, Duration::ZERO);
        }
    }

    fn write(&mut self, change: Change, pause: Duration) {
        let (store, expires) = (self.store.clone(), self.expires);
        self.writes.spawn(async move {
            sleep(pause).await;
            let result = match &change.value {
                Some(value) => {
                    let set = store.set(change.key.clone(), value.clone());
                    let set = match expires {
                        Some(expires) => set.expires_after(expires),
                        None => set,
                    };
                    set.await.map(|version| Some(Write::Set(version)))
                }
                None => {
                    let deleted = store.del(change.key.clone()).await;
                    deleted.map(|is_deleted| is_deleted.then_some(Write::Deleted))
                }
            };
            (change, result)
        });
    }

    fn settle(
        &mut self,
        (mut change, result): (Change, Result<Option<Write>, Error>),
    ) -> Result<(), Failure> {
        let write = match result {
            Ok(write) => {
                match change.value {
                    Some(_) => self.set += 1,
                    None => self.deleted += 1,
                }
                write
            }
            Err(error) if refusals::may_pass(&error, change.refusals) => {
                change.refusals += 1;
                let failure = refusals::key_failure(&change.key, error);
                self.notices.print("again", format_args!("{failure}; trying again"));
                self.write(change, RETRY);
                return Ok(());
            }
            Err(error @ (Error::Refused { .. } | Error::Invalid(_))) => {
                self.refused += 1;
                self.notices.print("refused", refusals::key_failure(&change.key, error));
                None
            }
            Err(error @ Error::Closed(_)) => return Err(Failure::request(error)),
            Err(error) => {
                let failure = Failure::request(error);
                self.notices.print("again", format_args!("{failure}; trying again"));
                self.write(change, RETRY);
                return Ok(());
            }
        };
        self.echoes.end(&change.key, write);
        self.busy.retain(|key| *key != change.key);
        if let Some(held) = self.held.iter_mut().find(|held| held.number == change.number) {
            held.is_done = true;
        }
        Ok(())
    }
}

/// The mark of a message that a bridge has published.
fn mark_of(message: &Message) -> Option<&str> {
    let mut properties = message.message().properties().user();
    properties.find_map(|(name, value)| (name == MARK).then_some(value))
}

/// The value at a JSON pointer.
fn value_at(payload: &[u8], pointer: &str) -> Result<Bytes, &'static str> {
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
            let found = value_at(payload, pointer);
            assert_eq!(found, expected.map(Bytes::from), "{pointer}");
        }
        assert!(value_at(b"{", "").is_err() && value_at(b"[[", "/0").is_err());
        assert_eq!(value_at(b"7", ""), Ok("7".into()));
        let deep = vec![b'['; 10_000];
        assert_eq!(value_at(&deep, ""), Err("the payload is not JSON"));
    }
}
