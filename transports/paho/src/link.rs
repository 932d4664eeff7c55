//! The link: a [`ManagedLink`] over Paho.

use paho_mqtt::{PropertyCode, ServerResponse};
use statestore_tokio::adapter::{Connector, Mailbox, Negotiated, Opening};
use statestore_tokio::{LinkError, ManagedLink};

use crate::client::Client;
use crate::connection::Connection;
use crate::options;

/// A [`Link`](statestore_tokio::Link) over Paho.
pub type PahoLink = ManagedLink<Paho>;

/// Default of [`Paho::inbox`].
const INBOX_MAX: usize = 4_096;

/// Opens connections with Paho.
#[derive(Clone, Debug, Default)]
pub struct Paho {
    inbox: Option<usize>,
}

impl Paho {
    /// Sets how many messages are queued for a busy machine before the link leaves the rest to the
    /// broker and reconnects; 4,096 by default.
    ///
    /// ```
    /// use statestore_paho::{Options, PahoLink};
    ///
    /// let options = Options::new("statestore", "localhost", 1883);
    /// let link = PahoLink::for_store(options).configure(|paho| paho.inbox(500));
    /// ```
    #[must_use]
    pub fn inbox(mut self, messages: usize) -> Self {
        self.inbox = Some(messages.max(1));
        self
    }
}

impl Connector for Paho {
    type Connection = Connection;

    /// Paho acknowledges a message when it reads it.
    const MANUAL_ACKS: bool = false;

    async fn open(&mut self, opening: Opening<'_>) -> Result<(Connection, Negotiated), LinkError> {
        opening.require_tcp("statestore-paho")?;
        let mailbox = Mailbox::new(self.inbox.unwrap_or(INBOX_MAX));
        let (client, connack) = Client::connect(opening, &mailbox).await?;
        let connection = Connection::new(client, mailbox, options::requests_max(opening.options));
        Ok((connection, negotiated(&connack)))
    }
}

fn negotiated(connack: &ServerResponse) -> Negotiated {
    let mut negotiated = Negotiated::default();
    let properties = connack.properties();
    negotiated.session_present = connack.connect_response().is_some_and(|it| it.session_present);
    negotiated.maximum_packet_size = properties.get_val(PropertyCode::MaximumPacketSize);
    negotiated.retain_available = properties.get_val(PropertyCode::RetainAvailable) != Some(0_u8);
    negotiated
}
