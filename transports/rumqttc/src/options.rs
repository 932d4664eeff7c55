//! Options of rumqttc.

use rumqttc::v5::MqttOptions;
use statestore_tokio::{Address, LinkError, Options};

/// Converts [`Options`] for a separate rumqttc connection, for example to use other MQTT features.
/// TLS is included. Only the first address is used.
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
/// [`LinkError`] if a file of the TLS settings is invalid, or this crate was built without the
/// feature `tls`.
pub fn mqtt_options(options: &Options) -> Result<MqttOptions, LinkError> {
    let mut mqtt = mqtt(options, &Address::new(&*options.host, options.port));
    encrypt(&mut mqtt, options)?;
    Ok(mqtt)
}

/// Sets the TLS configuration of the options.
#[cfg(feature = "tls")]
pub(crate) fn encrypt(mqtt: &mut MqttOptions, options: &Options) -> Result<(), LinkError> {
    if let Some(tls) = &options.tls {
        let config = crate::tls_config(tls).map_err(LinkError::tls)?;
        let config = rumqttc::TlsConfiguration::Rustls(config);
        mqtt.set_transport(rumqttc::Transport::Tls(config));
    }
    Ok(())
}

/// Fails if the options require TLS, which this build does not support.
#[cfg(not(feature = "tls"))]
pub(crate) fn encrypt(_: &mut MqttOptions, options: &Options) -> Result<(), LinkError> {
    match options.tls {
        Some(_) => Err(LinkError::without_tls("statestore-rumqttc")),
        None => Ok(()),
    }
}

/// Options of an event loop for this address, without acknowledgement mode and TLS. TLS verifies
/// the host name.
pub(crate) fn mqtt(options: &Options, at: &Address) -> MqttOptions {
    let mut mqtt = MqttOptions::new(&options.client_id, at.bare_host(), at.port);
    let mut network = mqtt.network_options();
    let connect_timeout = options.connect_timeout.as_secs();
    network.set_tcp_nodelay(true);
    network.set_connection_timeout(connect_timeout);
    mqtt.set_network_options(network)
        .set_connection_timeout(connect_timeout)
        .set_keep_alive(options.keep_alive)
        .set_max_packet_size(Some(options.max_packet_size))
        .set_outgoing_inflight_upper_limit(options.max_in_flight)
        .set_clean_start(options.session().is_none())
        .set_session_expiry_interval(options.session_seconds())
        .set_receive_maximum(Some(options.receive_maximum));
    if let Some((user, password)) = &options.credentials {
        mqtt.set_credentials(user, password);
    }
    mqtt
}
