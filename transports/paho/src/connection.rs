//! One connection: the packets that Paho has, and their outcomes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use paho_mqtt::{DisconnectOptionsBuilder, Error, MessageBuilder, ServerResponse, Token};
use statestore_proto::transport::ReasonCode;
use statestore_tokio::LinkError;
use statestore_tokio::adapter::{
    self, Completions, ConnectionEvent, Mailbox, Outgoing, PacketId, Ticket,
};
use tokio::time::timeout;
use tracing::warn;

use crate::client::Client;
use crate::convert::{self, Message};

/// Maximum time to wait for the outcomes of sent packets before a DISCONNECT.
const FLUSH_MAX: Duration = Duration::from_millis(500);

/// One connection.
pub struct Connection {
    client: Client,
    mailbox: Arc<Mailbox<Message>>,
    /// Paho calls the wakers under its only lock.
    completions: Completions<Token>,
    /// Whether a packet failed because the connection is lost. Paho would take further packets and
    /// drop them.
    is_lost: bool,
}

impl Connection {
    pub(crate) fn new(client: Client, mailbox: Arc<Mailbox<Message>>, requests_max: usize) -> Self {
        let woken = Arc::clone(&mailbox);
        let completions = Completions::new(requests_max, move || woken.wake());
        Self { client, mailbox, completions, is_lost: false }
    }

    fn settle(&mut self, ticket: Ticket, result: &Result<ServerResponse, Error>) {
        if convert::is_poison(result) {
            self.client.release.in_use.is_poisoned = true;
        }
        match convert::outcome(result) {
            Some(reason) => self.mailbox.settle(ticket, reason),
            None => self.is_lost = true,
        }
    }

    fn settle_all(&mut self) {
        for (ticket, result) in self.completions.take() {
            self.settle(ticket, &result);
        }
    }

    /// Waits for the outcomes of all sent packets.
    async fn flush(&mut self) {
        loop {
            self.settle_all();
            if self.is_lost || !self.completions.wake_at_next() {
                return;
            }
            self.mailbox.wait_woken().await;
        }
    }
}

impl adapter::Connection for Connection {
    type Message = Message;

    fn try_send(&mut self, packet: Outgoing) -> Result<(), Outgoing> {
        if self.is_lost || !self.completions.try_admit() {
            return Err(packet);
        }
        let ticket = packet.ticket();
        let paho = &self.client.paho;
        let token = match packet {
            Outgoing::Publish(publish) => match convert::packet(publish) {
                // Only the token, so that the payload is stored once.
                Ok(packet) => paho.publish(packet).into(),
                Err(error) => {
                    warn!(%error, "packet not sent");
                    self.mailbox.settle(ticket, ReasonCode::UNSPECIFIED_ERROR);
                    return Ok(());
                }
            },
            Outgoing::Plain { topic, payload, qos, retain } => {
                let message = MessageBuilder::new().topic(&*topic).payload(payload);
                paho.publish(message.qos(qos as i32).retained(retain).finalize()).into()
            }
            Outgoing::Subscribe { filter, qos, .. } => paho.subscribe(&*filter, qos as i32),
            Outgoing::Unsubscribe { filter } => paho.unsubscribe(&*filter),
            _ => return Ok(()),
        };
        if let Some((ticket, result)) = self.completions.push(ticket, token) {
            self.settle(ticket, &result);
        }
        Ok(())
    }

    async fn next_event(&mut self, messages: bool) -> Result<ConnectionEvent<Message>, LinkError> {
        loop {
            self.settle_all();
            if !self.is_lost && self.completions.take_drained() {
                self.mailbox.report(ConnectionEvent::Writable);
            }
            if let Some(event) = self.mailbox.poll(messages)? {
                return Ok(event);
            }
            let woken = self.mailbox.wait_woken();
            match self.completions.schedule_check() {
                Some(after) => _ = timeout(after, woken).await,
                None => woken.await,
            }
        }
    }

    fn acknowledge(&mut self, _: PacketId) {}

    async fn close(mut self) {
        let _ = timeout(FLUSH_MAX, self.flush()).await;
        // Paho acknowledges messages until the connection is closed, and these are lost. If Paho
        // waits itself, the DISCONNECT leaves more than a second later, even if nothing is in
        // flight.
        self.mailbox.close();
        let options = DisconnectOptionsBuilder::new().timeout(Duration::ZERO).finalize();
        let _ = self.client.paho.disconnect(options).await;
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.mailbox.close();
        self.client.release.in_use.publishes = self.completions.take_pending().collect();
    }
}
