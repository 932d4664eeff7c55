//! The link: a [`ManagedLink`] over rumqttc.

use std::fmt;
#[cfg(feature = "tls")]
use std::sync::Arc;

use rumqttc::v5::mqttbytes::v5::{ConnAck, Packet};
use rumqttc::v5::{AsyncClient, Event, MqttOptions};
use statestore_tokio::adapter::{Connector, Negotiated, Opening};
use statestore_tokio::{LinkError, ManagedLink};

use crate::connection::Connection;
use crate::convert;
use crate::options;

/// Capacity of rumqttc's channel beyond the queue: one acknowledgement for each packet id, and the
/// packets of the link itself.
const CHANNEL_RESERVE: usize = 65_535 + 16;

/// A [`Link`](statestore_tokio::Link) over rumqttc.
pub type RumqttcLink = ManagedLink<Rumqttc>;

type Change = Box<dyn Fn(&mut MqttOptions) + Send>;

/// Opens connections with rumqttc. The [cause](LinkError::get_ref) of its errors is a
/// [`ConnectionError`](rumqttc::v5::ConnectionError).
#[derive(Default)]
pub struct Rumqttc {
    change: Option<Change>,
    #[cfg(feature = "tls")]
    rustls: Option<Arc<rustls::ClientConfig>>,
}

impl Rumqttc {
    /// Changes other options of rumqttc for each connection, for example a will or socket buffers.
    /// Settings for which [`Options`](crate::Options) has a method must be set there.
    ///
    /// ```
    /// use statestore_rumqttc::{Options, RumqttcLink};
    ///
    /// let link = RumqttcLink::for_client(Options::new("c1", "localhost", 1883))
    ///     .configure(|rumqttc| {
    ///         rumqttc.mqtt_options(|mqtt| _ = mqtt.set_request_channel_capacity(9))
    ///     });
    /// ```
    #[must_use]
    pub fn mqtt_options(mut self, change: impl Fn(&mut MqttOptions) + Send + 'static) -> Self {
        self.change = Some(Box::new(change));
        self
    }

    /// Encrypts the connection with this configuration in place of
    /// [`Options::tls`](crate::Options::tls).
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn rustls(mut self, config: Arc<rustls::ClientConfig>) -> Self {
        self.rustls = Some(config);
        self
    }

    /// Options of a new event loop.
    fn mqtt(&self, opening: Opening<'_>) -> Result<MqttOptions, LinkError> {
        let mut mqtt = options::mqtt(opening.options, opening.address);
        if let Some(change) = &self.change {
            change(&mut mqtt);
        }
        mqtt.set_manual_acks(opening.manual_acks);
        #[cfg(feature = "tls")]
        if let Some(config) = &self.rustls {
            let config = rumqttc::TlsConfiguration::Rustls(Arc::clone(config));
            mqtt.set_transport(rumqttc::Transport::Tls(config));
            return Ok(mqtt);
        }
        options::encrypt(&mut mqtt, opening.options)?;
        Ok(mqtt)
    }
}

impl Connector for Rumqttc {
    type Connection = Connection;

    async fn open(&mut self, opening: Opening<'_>) -> Result<(Connection, Negotiated), LinkError> {
        opening.require_tcp("statestore-rumqttc")?;
        let mqtt = self.mqtt(opening)?;
        let keep_alive = mqtt.keep_alive();
        let capacity = opening.options.max_queued_packets + CHANNEL_RESERVE;
        let (client, mut event_loop) = AsyncClient::new(mqtt, capacity);
        let connack = loop {
            match event_loop.poll().await {
                Ok(Event::Incoming(Packet::ConnAck(connack))) => break connack,
                Ok(_) => {}
                Err(error) => return Err(convert::error(error, true)),
            }
        };
        // Zero means no keep-alive, but rumqttc would send pings without a pause.
        if event_loop.options.keep_alive().is_zero() {
            event_loop.options.set_keep_alive(keep_alive);
        }
        let connection = Connection::new(client, event_loop, opening);
        Ok((connection, negotiated(&connack)))
    }
}

fn negotiated(connack: &ConnAck) -> Negotiated {
    let mut negotiated = Negotiated::default();
    negotiated.session_present = connack.session_present;
    if let Some(properties) = &connack.properties {
        negotiated.maximum_packet_size = properties.max_packet_size;
        negotiated.retain_available = properties.retain_available != Some(0);
    }
    negotiated
}

impl fmt::Debug for Rumqttc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rumqttc").finish_non_exhaustive()
    }
}
