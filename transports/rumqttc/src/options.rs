//! What rumqttc needs to know.

use rumqttc::v5::MqttOptions;
use statestore_tokio::{Address, LinkError, Options};

/// What rumqttc needs for a connection of its own, beside any link: [`Options`] in its words, TLS included. Of several
/// addresses it has the first.
///
/// ```
/// use statestore_rumqttc::{Options, mqtt_options, rumqttc::v5::AsyncClient};
///
/// let mqtt = mqtt_options(&Options::new("observer", "localhost", 1883))?;
/// let (client, event_loop) = AsyncClient::new(mqtt, 16);
/// # Ok::<(), statestore_rumqttc::LinkError>(())
/// ```
///
/// # Errors
/// Those of TLS: a file that is of no use, or a crate that was built without the feature `tls`.
pub fn mqtt_options(options: &Options) -> Result<MqttOptions, LinkError> {
    let mut mqtt = mqtt(options, &Address::new(&*options.host, options.port));
    encrypt(&mut mqtt, options)?;
    Ok(mqtt)
}

/// Has a connection encrypted as the options say.
#[cfg(feature = "tls")]
pub(crate) fn encrypt(mqtt: &mut MqttOptions, options: &Options) -> Result<(), LinkError> {
    if let Some(tls) = &options.tls {
        let config = crate::tls_config(tls).map_err(LinkError::fatal)?;
        let config = rumqttc::TlsConfiguration::Rustls(config);
        mqtt.set_transport(rumqttc::Transport::Tls(config));
    }
    Ok(())
}

/// Has a connection encrypted as the options say.
#[cfg(not(feature = "tls"))]
pub(crate) fn encrypt(_: &mut MqttOptions, options: &Options) -> Result<(), LinkError> {
    match options.tls {
        Some(_) => Err(LinkError::fatal("statestore-rumqttc was built without its feature `tls`")),
        None => Ok(()),
    }
}

/// For a new event loop that connects to this address, but for acknowledgements and TLS. TLS checks the name of the host.
pub(crate) fn mqtt(options: &Options, at: &Address) -> MqttOptions {
    let mut mqtt = MqttOptions::new(&options.client_id, at.bare_host(), at.port);
    let mut network = mqtt.network_options();
    let connect_timeout = options.connect_timeout.as_secs();
    network.set_tcp_nodelay(true);
    network.set_connection_timeout(connect_timeout);
    let session = options.session();
    let seconds =
        session.map(|session| u32::try_from(session.as_secs().max(1)).unwrap_or(u32::MAX));
    mqtt.set_network_options(network)
        .set_connection_timeout(connect_timeout)
        .set_keep_alive(options.keep_alive)
        .set_max_packet_size(Some(options.max_packet_size))
        .set_outgoing_inflight_upper_limit(options.in_flight)
        .set_clean_start(session.is_none())
        .set_session_expiry_interval(seconds)
        .set_receive_maximum(Some(options.receive_maximum));
    if let Some((user, password)) = &options.credentials {
        mqtt.set_credentials(user, password);
    }
    mqtt
}
