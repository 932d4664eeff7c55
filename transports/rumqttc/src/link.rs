//! The link: one rumqttc event loop after the other.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{ConnAck, Packet, Publish};
use rumqttc::v5::{AsyncClient, Event, EventLoop};
use statestore_proto::mqtt::Transmit;
use statestore_tokio::{Connected, Link, LinkError, LinkEvent, presence};
use tokio::sync::mpsc;

use crate::connection::Connection;
use crate::convert::{self, Message};
use crate::mailbox::{Bounds, Mailbox, Ticket};
use crate::offenders::Offenders;
use crate::options::Options;
use crate::pump::Pump;
use crate::redelivery::Redelivery;
use crate::takeover::Takeover;

/// How long a goodbye may take.
const GOODBYE_MAX: Duration = Duration::from_secs(1);

/// Acknowledgements wait in rumqttc's channel beyond the bound of other requests: one for each packet id, and some room
/// for the subscriptions, the claim and the goodbye of the link itself.
const CHANNEL_RESERVE: usize = 65_535 + 16;

/// Messages about claims that wait to be read. There are two of them: what is retained, and the echo.
const CLAIMS_MAX: usize = 8;

/// After so many connections lost while claiming it is taken for the reason: a broker may close one for what its rules
/// deny. One such loss is likely another store, which must not go unnoticed.
const LOST_CLAIMING_MAX: u8 = 2;

/// A [`Link`] over rumqttc.
pub struct RumqttcLink {
    options: Options,
    /// Counts connections; what belongs to an earlier one is nobody's business any more.
    generation: u64,
    connection: Option<Connection>,
    again: Redelivery,
    offenders: Offenders,
    /// For a store, unless its options forbid it.
    takeover: Option<Takeover>,
    /// Connections in a row that were lost while they claimed.
    lost_claiming: u8,
}

impl RumqttcLink {
    /// A link for an application: a clean session, and messages are acknowledged when they arrive.
    #[must_use]
    pub fn for_client(options: Options) -> Self {
        let (again, offenders) = (Redelivery::default(), Offenders::default());
        let (connection, takeover) = (None, None);
        Self { options, generation: 0, connection, again, offenders, takeover, lost_claiming: 0 }
    }

    /// A link for a store: messages are acknowledged after they are answered, and the broker keeps the session for a
    /// while, so that requests without an answer come again after a lost connection. What `options` say of both counts.
    /// It ends when another store [takes over](Options::claim) the client id.
    #[must_use]
    pub fn for_store(options: Options) -> Self {
        let mut link = Self::for_client(options.or_store_defaults());
        if link.options.claim && !link.options.retry_after_takeover {
            link.takeover = Takeover::new(link.options.client_id(), fastrand::u64(..));
        }
        link
    }

    fn connected(
        &self,
        client: AsyncClient,
        event_loop: EventLoop,
        told: &ConnAck,
        claims: mpsc::Sender<Publish>,
    ) -> Connection {
        let options = &self.options;
        let mailbox = Mailbox::new(Bounds {
            requests: options.requests_max,
            messages: options.messages_max(),
            manual_acks: options.uses_manual_acks(),
        });
        let mut pump = Pump::new(Arc::clone(&mailbox), self.generation);
        pump.manual_acks = options.uses_manual_acks();
        pump.presence = options.presence;
        pump.retry_after_takeover = options.retry_after_takeover;
        pump.claims = self.takeover.as_ref().map(|of| (of.topic().to_owned(), claims));
        let told = told.properties.as_ref().and_then(|properties| properties.max_packet_size);
        let told = told.and_then(|max| usize::try_from(max).ok());
        let connection = Connection {
            client,
            mailbox,
            pump: tokio::spawn(pump.run(event_loop)),
            generation: self.generation,
            packet_bytes_max: told.unwrap_or(usize::MAX).min(convert::PACKET_BYTES_MAX),
            unacknowledged: VecDeque::new(),
            claimed: None,
        };
        if options.presence {
            for filter in presence::FILTERS {
                connection.subscribe(filter, QoS::AtMostOnce, None);
            }
        }
        connection
    }
}

impl Link for RumqttcLink {
    type Message = Message;

    async fn connect(&mut self) -> Result<Connected, LinkError> {
        self.connection = None;
        self.generation += 1;
        let mqtt = self.options.mqtt();
        let keep_alive = mqtt.keep_alive();
        let capacity = self.options.requests_max + CHANNEL_RESERVE;
        let (client, mut event_loop) = AsyncClient::new(mqtt, capacity);
        let told = loop {
            match event_loop.poll().await {
                Ok(Event::Incoming(Packet::ConnAck(told))) => break told,
                Ok(_) => {}
                Err(error) => {
                    return Err(convert::error(&error, self.options.retry_after_takeover));
                }
            }
        };
        // A broker that wants no keep-alive says zero, which rumqttc takes for a ping without pause.
        if event_loop.options.keep_alive().is_zero() {
            event_loop.options.set_keep_alive(keep_alive);
        }
        let session_present = told.session_present;
        self.again.connected();
        let (claims, mut heard) = mpsc::channel(CLAIMS_MAX);
        let connection = self.connected(client, event_loop, &told, claims);
        let connection = self.connection.insert(connection);
        // To retain where the broker has none of it would be the end of the connection.
        let retains = told.properties.is_none_or(|told| told.retain_available != Some(0));
        let may_claim = retains && self.lost_claiming < LOST_CLAIMING_MAX;
        if let Some(takeover) = self.takeover.as_mut().filter(|_| may_claim)
            && let Err(error) = connection.claim(takeover, &mut heard).await
        {
            self.lost_claiming += 1;
            self.disconnect().await;
            return Err(error);
        }
        self.lost_claiming = 0;
        Ok(Connected { session_present })
    }

    fn try_send(&mut self, transmit: Transmit) -> Result<(), Transmit> {
        // Without a connection there is nothing to wait for: `next` says so.
        let Some(connection) = &mut self.connection else { return Ok(()) };
        match transmit {
            Transmit::Acknowledge(delivery) => connection.acknowledge(delivery),
            Transmit::Disconnect { client_id } => self.offenders.note(&client_id),
            other if !connection.mailbox.has_room() => return Err(other),
            Transmit::Publish(publish) => connection.publish(&publish),
            Transmit::Subscribe { filter, token } => {
                connection.subscribe(&filter, QoS::AtLeastOnce, Some(token));
            }
        }
        Ok(())
    }

    async fn next(&mut self, messages: bool) -> Result<LinkEvent<Message>, LinkError> {
        let Some(connection) = &mut self.connection else {
            return Err(LinkError::transient("not connected"));
        };
        loop {
            if let Some(event) = connection.take(messages, &mut self.again)? {
                return Ok(event);
            }
            connection.mailbox.arrival().await;
        }
    }

    async fn disconnect(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        connection.withdraw();
        let Connection { client, mailbox, pump, .. } = &mut connection;
        mailbox.close();
        mailbox.send(Ticket::Other, || client.try_disconnect().is_ok());
        // The broker closes the connection when it has read everything; to close it here first might cut that off.
        let _ = tokio::time::timeout(GOODBYE_MAX, pump).await;
    }
}

impl fmt::Debug for RumqttcLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RumqttcLink").field("options", &self.options).finish_non_exhaustive()
    }
}
