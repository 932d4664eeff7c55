//! The link: one rumqttc event loop after the other.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{ConnAck, Packet, Publish};
use rumqttc::v5::{AsyncClient, Event, EventLoop, MqttOptions};
use statestore_proto::mqtt::Transmit;
use statestore_tokio::diagnostics::mosquitto;
use statestore_tokio::{Address, Addresses, Connected, InUse, Link, LinkError, LinkEvent, Options};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::connection::Connection;
use crate::convert::{self, Message};
use crate::mailbox::{Bounds, Mailbox, Ticket};
use crate::offenders::Offenders;
use crate::options;
use crate::pump::Pump;
use crate::redelivery::Redelivery;
use crate::takeover::Takeover;
#[cfg(feature = "tls")]
use crate::trouble::{self, Trouble};

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
    addresses: Addresses,
    manual_acks: bool,
    change: Option<Change>,
    #[cfg(feature = "tls")]
    rustls: Option<Arc<rustls::ClientConfig>>,
    /// Until there is a connection, where it is to give up early.
    #[cfg(feature = "tls")]
    fail_fast: Option<Words>,
    /// Counts connections; what belongs to an earlier one is nobody's business any more.
    generation: u64,
    connection: Option<Connection>,
    redelivery: Redelivery,
    offenders: Offenders,
    /// For a store, unless it is not to claim.
    takeover: Option<Takeover>,
    /// Connections in a row that were lost while they claimed.
    lost_claiming: u8,
}

type Change = Box<dyn Fn(&mut MqttOptions) + Send>;

#[cfg(feature = "tls")]
type Words = fn(&Trouble) -> String;

impl RumqttcLink {
    /// A link for an application: a clean session, and messages are acknowledged when they arrive.
    #[must_use]
    pub fn for_client(options: Options) -> Self {
        Self {
            addresses: Addresses::new(&options),
            options,
            manual_acks: false,
            change: None,
            #[cfg(feature = "tls")]
            rustls: None,
            #[cfg(feature = "tls")]
            fail_fast: None,
            generation: 0,
            connection: None,
            redelivery: Redelivery::default(),
            offenders: Offenders::default(),
            takeover: None,
            lost_claiming: 0,
        }
    }

    /// A link for a store: messages are acknowledged after they are answered, and the broker keeps the session for a
    /// while, so that requests without an answer come again after a lost connection. It ends when another store
    /// [takes over](Self::without_claim) the client id.
    #[must_use]
    pub fn for_store(options: Options) -> Self {
        let mut link = Self::for_client(options.or_store_defaults());
        link.manual_acks = true;
        if !link.options.retry_after_takeover {
            link.takeover = Takeover::new(link.options.client_id.clone(), fastrand::u64(..));
        }
        link
    }

    /// Whether messages are acknowledged when the machine has dealt with them, in order of arrival, rather than when
    /// they arrive. By default stores do and clients do not.
    ///
    /// One that the broker sends again first of all on two connections in a row is acknowledged when it arrives: its
    /// answer may be what the broker closes the connection for, and then it would come again for ever.
    ///
    /// With it the broker holds back what exceeds the [receive maximum](Options::receive_maximum). Without it this side
    /// stops reading from the network until the machine has caught up, and a store that is too busy for that loses its
    /// connection and the requests that waited.
    #[must_use]
    pub const fn manual_acks(mut self, manual_acks: bool) -> Self {
        self.manual_acks = manual_acks;
        self
    }

    /// Has a store leave no claim.
    ///
    /// By default it leaves one, unless it is to connect again [after a takeover](Options::retry_after_takeover), so that
    /// of two with one client id the one that was started last serves and the other ends, on every broker. Clients never
    /// do. The claim is a retained message on `clients/{client id}/services/statestore/instance`, which this client must
    /// be allowed to write and to read. Each connection reads it first, and each store takes a number greater than the one
    /// it finds; clocks count only when the broker has lost the claim. A store that ends by itself removes it; one that
    /// is left behind does no harm, nor does one years beyond the clock.
    ///
    /// Without permission, or with a broker that retains nothing, a store serves all the same, half a second later or,
    /// where the broker closes the connection for it, at the third try.
    #[must_use]
    pub fn without_claim(mut self) -> Self {
        self.takeover = None;
        self
    }

    /// Whatever else rumqttc has to offer, for each connection anew: a will, socket buffers. What [`Options`] has a
    /// method for is set by that.
    #[must_use]
    pub fn mqtt_options(mut self, change: impl Fn(&mut MqttOptions) + Send + 'static) -> Self {
        self.change = Some(Box::new(change));
        self
    }

    /// Encrypts the connection like this, whatever [`Options::tls`] says.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn rustls(mut self, config: Arc<rustls::ClientConfig>) -> Self {
        self.rustls = Some(config);
        self
    }

    /// Gives up where another try is in vain until somebody acts, before the first connection: where one side speaks TLS
    /// and the other does not, or a certificate is not accepted. `words` tells the [`Trouble`] as whoever acts needs it.
    ///
    /// By default it tries again, since a certificate may be renewed and a broker be set up meanwhile. Of
    /// [several](Options::or_at) addresses each must be in vain. To find out what the port speaks, it is asked once more, for
    /// a second at most and without credentials.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn fail_fast(mut self, words: fn(&Trouble) -> String) -> Self {
        self.fail_fast = Some(words);
        self
    }

    /// Tells which of [several](Options::or_at) addresses is in use, also while this serves a handle or a store.
    #[must_use]
    pub fn in_use(&self) -> InUse {
        self.addresses.in_use()
    }

    /// For a new event loop.
    fn mqtt(&self, at: &Address) -> Result<MqttOptions, LinkError> {
        let mut mqtt = options::mqtt(&self.options, at);
        if let Some(change) = &self.change {
            change(&mut mqtt);
        }
        mqtt.set_manual_acks(self.manual_acks);
        #[cfg(feature = "tls")]
        if let Some(config) = &self.rustls {
            let config = rumqttc::TlsConfiguration::Rustls(Arc::clone(config));
            mqtt.set_transport(rumqttc::Transport::Tls(config));
            return Ok(mqtt);
        }
        options::encrypt(&mut mqtt, &self.options)?;
        Ok(mqtt)
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
            requests: options.queue,
            messages: options.receive_maximum.into(),
            manual_acks: self.manual_acks,
        });
        let mut pump = Pump::new(Arc::clone(&mailbox), self.generation);
        pump.manual_acks = self.manual_acks;
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
            for filter in mosquitto::FILTERS {
                connection.subscribe(filter, QoS::AtMostOnce, None);
            }
        }
        connection
    }

    /// Opens a connection to this address.
    async fn open(&mut self, at: &Address) -> Result<Connected, LinkError> {
        self.connection = None;
        self.generation += 1;
        let mqtt = self.mqtt(at)?;
        let keep_alive = mqtt.keep_alive();
        let capacity = self.options.queue + CHANNEL_RESERVE;
        let (client, mut event_loop) = AsyncClient::new(mqtt, capacity);
        let told = loop {
            match event_loop.poll().await {
                Ok(Event::Incoming(Packet::ConnAck(told))) => break told,
                Ok(_) => {}
                Err(error) => {
                    let told = convert::error(&error, self.options.retry_after_takeover);
                    #[cfg(feature = "tls")]
                    if let Some(words) = self.fail_fast.filter(|_| told.is_transient()) {
                        let is_encrypted = self.rustls.is_some() || self.options.tls.is_some();
                        let found = trouble::find(&error, at, is_encrypted).await;
                        let in_vain = |found| LinkError::fatal(words(&found)).elsewhere(None);
                        return Err(found.map_or(told, in_vain));
                    }
                    return Err(told);
                }
            }
        };
        #[cfg(feature = "tls")]
        {
            self.fail_fast = None;
        }
        // A broker that wants no keep-alive says zero, which rumqttc takes for a ping without pause.
        if event_loop.options.keep_alive().is_zero() {
            event_loop.options.set_keep_alive(keep_alive);
        }
        let session_present = told.session_present;
        self.redelivery.connected();
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
}

impl Link for RumqttcLink {
    type Message = Message;

    fn client_id(&self) -> &str {
        &self.options.client_id
    }

    async fn connect(&mut self) -> Result<Connected, LinkError> {
        let mut at = self.addresses.begin(Instant::now());
        loop {
            match self.open(&at).await {
                Ok(connected) => {
                    self.addresses.connected(Instant::now());
                    return Ok(connected);
                }
                Err(error) => at = self.addresses.failed(error)?,
            }
        }
    }

    fn try_send(&mut self, transmit: Transmit) -> Result<(), Transmit> {
        // Without a connection there is nothing to wait for: `next` says so.
        let Some(connection) = &mut self.connection else { return Ok(()) };
        match transmit {
            Transmit::Acknowledge(delivery) => connection.acknowledge(delivery),
            Transmit::Disconnect { client_id, .. } => self.offenders.note(&client_id),
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
            match connection.take(messages, &mut self.redelivery) {
                Ok(Some(event)) => return Ok(event),
                Ok(None) => {}
                Err(error) => return Err(self.addresses.lost(error, Instant::now())),
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
