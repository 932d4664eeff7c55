//! What Paho needs to know.

use std::time::Duration;

use paho_mqtt::{
    ConnectOptions, ConnectOptionsBuilder, CreateOptions, CreateOptionsBuilder, MQTT_VERSION_5,
    Properties, PropertyCode,
};
use statestore_tokio::{Address, LinkError, Options};

/// Paho clears a session that ends with its connection, and frees twice what it could not write when it does. So even a
/// clean session is kept for that long.
const SESSION_MIN: Duration = Duration::from_secs(1);

/// Packets that Paho may have at a time.
pub(crate) fn requests_max(options: &Options) -> usize {
    usize::from(options.in_flight) + options.queue
}

/// For a new client of this address. Nothing is persisted: the machines know what is to be sent again.
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

/// For its one connection.
pub(crate) fn connect(options: &Options) -> Result<ConnectOptions, LinkError> {
    let session = options.session();
    let properties = properties(options, session.unwrap_or(SESSION_MIN));
    let mut builder = ConnectOptionsBuilder::new_v5();
    builder
        .clean_start(session.is_none())
        .keep_alive_interval(options.keep_alive)
        .connect_timeout(options.connect_timeout)
        .max_inflight(options.in_flight.into())
        .properties(properties.map_err(LinkError::fatal)?);
    if let Some((user, password)) = &options.credentials {
        if user.contains('\0') {
            return Err(LinkError::fatal("the user name has a NUL; remove it"));
        }
        builder.user_name(&**user).password(&**password);
    }
    if let Some(tls) = &options.tls {
        #[cfg(feature = "tls")]
        builder.ssl_options(crate::tls_config(tls).map_err(LinkError::fatal)?);
        #[cfg(not(feature = "tls"))]
        return Err(LinkError::fatal(format_args!(
            "statestore-paho was built without its feature `tls`, so not with {tls:?}"
        )));
    }
    Ok(builder.finalize())
}

fn properties(options: &Options, session: Duration) -> Result<Properties, paho_mqtt::Error> {
    let mut properties = Properties::new();
    properties.push_u16(PropertyCode::ReceiveMaximum, options.receive_maximum)?;
    properties.push_u32(PropertyCode::MaximumPacketSize, options.max_packet_size)?;
    let seconds = u32::try_from(session.max(SESSION_MIN).as_secs()).unwrap_or(u32::MAX);
    properties.push_u32(PropertyCode::SessionExpiryInterval, seconds)?;
    Ok(properties)
}
