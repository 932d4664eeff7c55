//! Conversion of the options.

use paho_mqtt::{
    ConnectOptions, ConnectOptionsBuilder, CreateOptions, CreateOptionsBuilder, MQTT_VERSION_5,
    Properties, PropertyCode,
};
use statestore_tokio::{Address, LinkError, LinkErrorKind as Kind, Options};

/// Session expiry of a clean session. When a session ends with its connection, Paho clears it and
/// frees packets twice that it could not write.
const CLEAN_SESSION_SECONDS: u32 = 1;

/// Maximum number of packets that Paho has at a time.
pub(crate) fn requests_max(options: &Options) -> usize {
    usize::from(options.max_in_flight) + options.max_queued_packets
}

/// Options of a new client for this address. Nothing is persisted: the machines decide which
/// packets are sent again.
pub(crate) fn create(options: &Options, at: &Address) -> CreateOptions {
    let scheme = if options.tls.is_some() { "mqtts" } else { "mqtt" };
    CreateOptionsBuilder::new()
        .server_uri(format!("{scheme}://{at}"))
        .client_id(&*options.client_id)
        .mqtt_version(MQTT_VERSION_5)
        .persistence(None)
        .max_buffered_messages(i32::try_from(requests_max(options)).unwrap_or(i32::MAX))
        .finalize()
}

/// Options of its one connection.
pub(crate) fn connect(options: &Options) -> Result<ConnectOptions, LinkError> {
    let unsupported = |error| LinkError::from_source(Kind::Unsupported, error);
    let mut builder = ConnectOptionsBuilder::new_v5();
    builder
        .clean_start(options.session().is_none())
        .keep_alive_interval(options.keep_alive)
        .connect_timeout(options.connect_timeout)
        .max_inflight(options.max_in_flight.into())
        .properties(properties(options).map_err(unsupported)?);
    if let Some((user, password)) = &options.credentials {
        builder.user_name(&**user).password(&**password);
    }
    #[cfg(feature = "tls")]
    if let Some(tls) = &options.tls {
        builder.ssl_options(crate::tls_config(tls).map_err(LinkError::tls)?);
    }
    #[cfg(not(feature = "tls"))]
    if options.tls.is_some() {
        return Err(LinkError::without_tls("statestore-paho"));
    }
    Ok(builder.finalize())
}

fn properties(options: &Options) -> Result<Properties, paho_mqtt::Error> {
    let mut properties = Properties::new();
    properties.push_u16(PropertyCode::ReceiveMaximum, options.receive_maximum)?;
    properties.push_u32(PropertyCode::MaximumPacketSize, options.max_packet_size)?;
    let session = options.session_seconds().unwrap_or(CLEAN_SESSION_SECONDS);
    properties.push_u32(PropertyCode::SessionExpiryInterval, session)?;
    Ok(properties)
}
