//! A link that delays messages; simulated time makes long delays cheap.

use std::collections::VecDeque;
use std::time::Duration;

use statestore_loopback::{HubLink, Message};
use statestore_proto::transport::{Incoming, Transmit};
use statestore_tokio::{AsIncoming, Connected, Link, LinkError, LinkEvent};
use tokio::time::{Instant, sleep_until};

/// A link that queues messages for a fixed time.
pub(crate) struct Late {
    pub(crate) link: HubLink,
    pub(crate) wait: Duration,
    waiting: VecDeque<Waited>,
}

/// A message with its time of arrival.
pub(crate) struct Waited(Message, Instant);

impl Late {
    pub(crate) fn new(link: HubLink, wait: Duration) -> Self {
        Self { link, wait, waiting: VecDeque::new() }
    }
}

impl AsIncoming for Waited {
    fn as_incoming(&self) -> Option<Incoming<'_>> {
        AsIncoming::as_incoming(&self.0)
    }

    fn received(&self) -> Option<Instant> {
        Some(self.1)
    }
}

impl Link for Late {
    type Message = Waited;

    fn client_id(&self) -> &str {
        self.link.client_id()
    }

    async fn connect(&mut self) -> Result<Connected, LinkError> {
        self.waiting.clear();
        self.link.connect().await
    }

    fn try_send(&mut self, transmit: Transmit) -> Result<(), Transmit> {
        self.link.try_send(transmit)
    }

    async fn next_event(&mut self, messages: bool) -> Result<LinkEvent<Waited>, LinkError> {
        loop {
            let due = self.waiting.front().map(|Waited(_, arrived)| *arrived + self.wait);
            let event = tokio::select! {
                biased;
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    return Ok(LinkEvent::Message(self.waiting.pop_front().expect("it is due")));
                }
                event = self.link.next_event(messages) => event?,
            };
            match event {
                LinkEvent::Message(message) => {
                    self.waiting.push_back(Waited(message, Instant::now()));
                }
                LinkEvent::Subscribed(token, reason) => {
                    return Ok(LinkEvent::Subscribed(token, reason));
                }
                LinkEvent::Published(token, reason) => {
                    return Ok(LinkEvent::Published(token, reason));
                }
                LinkEvent::ClientGone(client) => return Ok(LinkEvent::ClientGone(client)),
                LinkEvent::Writable => return Ok(LinkEvent::Writable),
            }
        }
    }

    async fn disconnect(&mut self) {
        self.link.disconnect().await;
    }
}
