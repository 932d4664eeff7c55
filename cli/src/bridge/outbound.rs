//! Publishes the changes of keys.

use std::collections::VecDeque;

use bytes::Bytes;
use statestore_client::mqtt::property::Property;
use statestore_client::mqtt::session::{Event, Publish, SendError};
use statestore_client::mqtt::{Qos, Reason};
use statestore_client::{Options, SessionSocket};
use statestore_proto::hlc::Version;
use statestore_tokio::{
    LinkError, LinkErrorKind, PatternEnd, PatternEvent, PatternWatch, StateStore,
};

use super::echoes::{Origin, SharedEchoes};
use super::reconnection::Reconnection;
use super::template::Template;
use super::{Ended, MARK};
use crate::args::Bridge;
use crate::escape::preview;
use crate::failure::Failure;
use crate::notices::Notices;
use crate::output::notice;

/// Maximum number of changes that wait to be published. At this number, the watch is not polled. It
/// then drops changes, and reports the present values later.
const WAITING_MAX: usize = 256;

/// Maximum number of keys that are watched: that of a watched pattern. Changes of other keys are not
/// published.
const KEYS_MAX: usize = 1_000;

/// Maximum number of messages without an acknowledgement of the broker. They are published again
/// after a reconnect, so it bounds the duplicates that a subscriber may get.
const UNSETTLED_MAX: usize = 64;

struct Change {
    key: Bytes,
    /// `None` for a deletion.
    value: Option<Bytes>,
    version: Option<Version>,
}

/// A message without an acknowledgement.
struct Unsettled {
    token: u64,
    topic: String,
    payload: Bytes,
}

/// The direction from keys to topics.
pub(super) struct Outbound {
    store: StateStore,
    changes: PatternWatch,
    pattern: String,
    options: Options,
    socket: Option<SessionSocket>,
    template: Template,
    is_retained: bool,
    count: Option<u64>,
    /// Mark of this process.
    mark: String,
    echoes: SharedEchoes,
    reconnection: Reconnection,
    waiting: VecDeque<Change>,
    /// Messages without an acknowledgement, in the order in which they were published.
    unsettled: VecDeque<Unsettled>,
    last_token: u64,
    /// Set after the present values were reported once.
    has_begun: bool,
    published: u64,
    skipped: u64,
    refused: u64,
    notices: Notices,
}

impl Outbound {
    pub(super) fn new(
        store: &StateStore,
        options: Options,
        args: &Bridge,
        pattern: &str,
        template: Template,
        mark: String,
        echoes: SharedEchoes,
    ) -> Self {
        Self {
            store: store.clone(),
            changes: store.watch_pattern(pattern.to_owned()).keys_max(KEYS_MAX).skip_excess_keys(),
            pattern: pattern.to_owned(),
            options,
            socket: None,
            template,
            is_retained: args.retain,
            count: args.count,
            mark,
            echoes,
            reconnection: Reconnection::new("publishes changes", args.common.time_limit.timeout),
            waiting: VecDeque::new(),
            unsettled: VecDeque::new(),
            last_token: 0,
            has_begun: false,
            published: 0,
            skipped: 0,
            refused: 0,
            notices: Notices::default(),
        }
    }

    /// Number of messages that the broker refused.
    pub(super) const fn refused(&self) -> u64 {
        self.refused
    }

    /// The results; `None` if the bridge failed before it published anything.
    pub(super) fn summary(&self, has_failed: bool) -> Option<String> {
        let Self { published, skipped, refused, .. } = self;
        let text = format!("published {published}, skipped {skipped}, refused {refused}\n");
        (self.settled() > 0 || !has_failed).then_some(text)
    }

    pub(super) async fn close(self) {
        if let Some(socket) = self.socket {
            socket.close().await;
        }
    }

    /// Number of changes with a result.
    const fn settled(&self) -> u64 {
        self.published + self.skipped + self.refused
    }

    /// Runs until --count, or a permanent error.
    pub(super) async fn run(&mut self) -> Result<(), Failure> {
        loop {
            match self.run_connection().await {
                Ok(()) => return Ok(()),
                Err(Ended::Failure(failure)) => return Err(failure),
                Err(Ended::Connection(error)) => {
                    self.socket = None;
                    self.reconnection.retry(error).await?;
                }
            }
        }
    }

    async fn run_connection(&mut self) -> Result<(), Ended> {
        let connecting = SessionSocket::connect(&self.options);
        let connected = self.reconnection.attempt(connecting).await;
        let (socket, server) = connected.map_err(Ended::Connection)?;
        if self.is_retained && !server.retain_available {
            return Err(Ended::Failure(Failure::bad_input(
                "--retain: the broker does not support retained messages",
            )));
        }
        self.reconnection.record_connection();
        self.socket = Some(socket);
        // The session of the lost connection has ended, and its queue with it.
        for message in std::mem::take(&mut self.unsettled) {
            self.publish(message);
        }
        loop {
            let waits_for_response = self.publish_waiting();
            let is_complete = self.count.is_some_and(|count| self.settled() >= count);
            if is_complete && self.unsettled.is_empty() {
                return Ok(());
            }
            let Some(socket) = &mut self.socket else {
                let error = LinkError::new(LinkErrorKind::NotConnected, "not connected");
                return Err(Ended::Connection(error));
            };
            tokio::select! {
                event = socket.next_event() => {
                    let event = event.map_err(Ended::Connection)?;
                    if let Event::Published { token, reason, .. } = event {
                        self.settle(token, reason);
                    }
                }
                event = self.changes.next(), if self.waiting.len() < WAITING_MAX => {
                    self.receive(event).map_err(Ended::Failure)?;
                }
                () = self.echoes.wait_ended(), if waits_for_response => {}
            }
        }
    }

    fn receive(&mut self, event: Option<PatternEvent>) -> Result<(), Failure> {
        match event {
            Some(PatternEvent::Changed { key, value, version }) => {
                self.waiting.push_back(Change { key, value, version });
            }
            Some(PatternEvent::Live) if !self.has_begun => {
                self.has_begun = true;
                notice(format_args!("bridging the keys {}", self.pattern));
            }
            Some(PatternEvent::Live | PatternEvent::Gap) => {}
            // Other clients can create keys, and must not end the bridge.
            Some(PatternEvent::Skipped(count)) => self.notices.print(
                "keys",
                format_args!(
                    "--keys {}: {count} keys skipped: the limit is {KEYS_MAX}; use a narrower \
                     pattern, or one bridge for each part of the keys",
                    self.pattern
                ),
            ),
            Some(PatternEvent::Ended(PatternEnd::Failed(error))) => {
                return Err(crate::keys::failure(error));
            }
            None | Some(_) => return Err(Failure::stopped(&self.store.status().current())),
        }
        Ok(())
    }

    /// Publishes changes that wait. Returns whether the first of them may be an echo: it waits for
    /// the response to a write of this bridge.
    fn publish_waiting(&mut self) -> bool {
        while self.unsettled.len() < UNSETTLED_MAX {
            let begun = self.settled() + self.unsettled.len() as u64;
            if self.count.is_some_and(|count| begun >= count) {
                return false;
            }
            let Some(change) = self.waiting.front() else { return false };
            let version = change.version.as_ref().filter(|_| change.value.is_some());
            match self.echoes.origin(&change.key, version) {
                Origin::Pending => return true,
                Origin::Bridge => {
                    self.waiting.pop_front();
                    continue;
                }
                Origin::Other => {}
            }
            let Some(Change { key, value, .. }) = self.waiting.pop_front() else { return false };
            match self.template.fill_bytes(&key) {
                Ok(topic) => {
                    self.last_token += 1;
                    let (token, payload) = (self.last_token, value.unwrap_or_default());
                    self.publish(Unsettled { token, topic, payload });
                }
                Err(reason) => {
                    self.skipped += 1;
                    let key = preview(&key);
                    self.notices.print(reason, format_args!("the key {key} skipped: {reason}"));
                }
            }
        }
        false
    }

    fn publish(&mut self, message: Unsettled) {
        let Some(socket) = &mut self.socket else { return self.unsettled.push_back(message) };
        let now = socket.now();
        let sent = socket.session_mut().publish(
            now,
            Publish {
                topic: &message.topic,
                payload: message.payload.clone(),
                qos: Qos::AtLeastOnce,
                retain: self.is_retained,
                properties: Property::User(MARK, &self.mark),
                token: message.token,
            },
        );
        match sent {
            // The end of the connection is the next event.
            Ok(()) | Err(SendError::NotConnected) => self.unsettled.push_back(message),
            Err(error) => self.refuse(&message.topic, &error),
        }
    }

    fn settle(&mut self, token: u64, reason: Reason) {
        let Some(at) = self.unsettled.iter().position(|message| message.token == token) else {
            return;
        };
        let Some(message) = self.unsettled.remove(at) else { return };
        if reason.is_error() {
            self.refuse(&message.topic, &reason);
        } else {
            self.published += 1;
        }
    }

    fn refuse(&mut self, topic: &str, reason: &dyn std::fmt::Display) {
        self.refused += 1;
        let topic = preview(topic.as_bytes());
        self.notices.print(
            "refused",
            format_args!(
                "the topic {topic}: not published: {reason}; check that this client may publish \
                 there"
            ),
        );
    }
}
