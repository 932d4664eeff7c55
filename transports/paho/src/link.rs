//! The link: one Paho client after the other.

use std::fmt;
use std::time::Duration;

use paho_mqtt::QoS;
use statestore_proto::mqtt::Transmit;
use statestore_tokio::{Addresses, Connected, InUse, Link, LinkError, LinkEvent, Options};
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::connection::{Connection, Ticket};
use crate::convert::Message;

/// How long a goodbye may take.
const GOODBYE_MAX: Duration = Duration::from_secs(1);

/// Messages that wait for a machine that is busy.
const INBOX_MAX: usize = 4_096;

/// A [`Link`] over Paho.
pub struct PahoLink {
    options: Options,
    addresses: Addresses,
    inbox: usize,
    /// What belongs to an earlier one is nobody's business any more.
    connection: Option<Connection>,
    /// Orders to disconnect a client, which no ordinary client can do.
    offenders: u64,
}

impl PahoLink {
    /// A link for an application: a clean session.
    #[must_use]
    pub fn for_client(options: Options) -> Self {
        let addresses = Addresses::new(&options);
        Self { options, addresses, inbox: INBOX_MAX, connection: None, offenders: 0 }
    }

    /// A link for a store: the broker keeps the session for a while, so that it keeps requests while the store is away.
    /// What `options` say of that counts.
    #[must_use]
    pub fn for_store(options: Options) -> Self {
        Self::for_client(options.or_store_defaults())
    }

    /// Messages that wait here for a machine that is busy, at most, before the link leaves the rest to the broker and
    /// connects again; 4,096 by default.
    #[must_use]
    pub fn inbox(mut self, messages: usize) -> Self {
        self.inbox = messages.max(1);
        self
    }

    /// Tells which of [several](Options::or_at) addresses is in use, also while this serves a handle or a store.
    #[must_use]
    pub fn in_use(&self) -> InUse {
        self.addresses.in_use()
    }

    fn cannot_disconnect(&mut self, client_id: &str) {
        self.offenders += 1;
        if self.offenders == 1 {
            warn!(
                client_id,
                "an ordinary client cannot disconnect another; offenders stay connected"
            );
        } else {
            debug!(client_id, offenders = self.offenders, "an offender stays connected");
        }
    }
}

impl Link for PahoLink {
    type Message = Message;

    fn client_id(&self) -> &str {
        &self.options.client_id
    }

    async fn connect(&mut self) -> Result<Connected, LinkError> {
        self.connection = None;
        let mut at = self.addresses.begin(Instant::now());
        let connection = loop {
            match Connection::open(&self.options, &at, self.inbox).await {
                Ok(connection) => break connection,
                Err(error) => at = self.addresses.failed(error)?,
            }
        };
        self.addresses.connected(Instant::now());
        let session_present = connection.session_present;
        self.connection = Some(connection);
        Ok(Connected { session_present })
    }

    fn try_send(&mut self, transmit: Transmit) -> Result<(), Transmit> {
        // Without a connection there is nothing to wait for: `next` says so.
        let Some(connection) = &mut self.connection else { return Ok(()) };
        match transmit {
            // Paho did that when it read the message.
            Transmit::Acknowledge(_) => {}
            Transmit::Disconnect { client_id, .. } => self.cannot_disconnect(&client_id),
            other if !connection.has_room() => return Err(other),
            Transmit::Publish(publish) => connection.publish(publish),
            Transmit::Subscribe { filter, token } => {
                connection.subscribe(&filter, QoS::AtLeastOnce, Ticket::Subscribe(token));
            }
        }
        Ok(())
    }

    async fn next(&mut self, messages: bool) -> Result<LinkEvent<Message>, LinkError> {
        let Some(connection) = &mut self.connection else {
            return Err(LinkError::transient("not connected"));
        };
        loop {
            match connection.take(messages) {
                Ok(Some(event)) => return Ok(event),
                Ok(None) => {}
                Err(error) => return Err(self.addresses.lost(error, Instant::now())),
            }
            connection.arrival().await;
        }
    }

    async fn disconnect(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        let _ = tokio::time::timeout(GOODBYE_MAX, connection.goodbye()).await;
    }
}

impl fmt::Debug for PahoLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PahoLink").field("options", &self.options).finish_non_exhaustive()
    }
}
