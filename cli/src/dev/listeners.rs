//! The listeners of `dev`: each has its own login.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use statestore_server::config::{Config, ConfigError};
use statestore_server::{
    BindError, CertificateName, CertificateUsers, Listener, ServerError, ServerTls, TlsFiles,
};

use crate::args::{DevListen, DevRun};
use crate::dev::certificates::{AUTHORITY, SERVER};
use crate::dev::directory::Directory;
use crate::dev::tokens::{AUDIENCE, ISSUER, KEY_SET};
use crate::failure::Failure;

/// Interval of checks whether the policy has changed.
const POLICY_CHECK: Duration = Duration::from_secs(1);

/// The configuration without listeners.
pub(super) fn config(args: &DevRun, directory: &Directory) -> Config {
    let store = &args.store;
    let mut config = Config::default();
    config.login.service_account_keys = Some(directory.path(KEY_SET));
    config.login.service_account_issuer = Some(ISSUER.to_owned());
    config.login.service_account_audience = vec![AUDIENCE.to_owned()];
    // As in a cluster, where a client id does not depend on the login.
    config.login.no_client_id_binding = true;
    config.policy.policy.clone_from(&store.policy);
    config.reload.watch_files = store.policy.as_ref().map(|_| POLICY_CHECK);
    // Each listener for other machines has a login.
    config.listen.allow_anonymous = args.listen.listen_all && store.policy.is_none();
    config.storage.data_dir.clone_from(&store.data_dir);
    config.store.explain_refusals = store.explain_refusals;
    config.store.seed.clone_from(&store.seed);
    config.capture.capture.clone_from(&store.capture);
    config.http.metrics_listen.clone_from(&store.metrics_listen);
    config
}

/// The listeners: with a certificate, with a token, without a login, and WebSocket. With
/// `--listen-all` only the first two.
pub(super) fn listeners(
    listen: &DevListen,
    directory: &Directory,
) -> Result<Vec<Listener>, Failure> {
    check_origins(&listen.websocket_origin)?;
    let [plain, certificate, token, websocket] = listen.ports();
    let local = IpAddr::from(Ipv4Addr::LOCALHOST);
    let with_login = if listen.listen_all { Ipv4Addr::UNSPECIFIED.into() } else { local };
    let load = |files| ServerTls::load(files).map_err(Failure::bad_input);
    let files = || TlsFiles::new(directory.path(SERVER.certificate), directory.path(SERVER.key));
    let mutual = load(files().client_ca(directory.path(AUTHORITY.certificate)))?;
    let mut listeners = vec![
        Listener::new((with_login, certificate))
            .tls(mutual)
            .certificate_users(CertificateUsers::new(CertificateName::CommonName)),
        // The login of the configuration: tokens.
        Listener::new((with_login, token)).tls(load(files())?),
    ];
    if !listen.listen_all {
        listeners.push(Listener::new((local, plain)).anonymous());
        let websocket = Listener::new((local, websocket)).anonymous();
        listeners.push(websocket.websocket(&listen.websocket_origin));
    }
    Ok(listeners)
}

/// Refuses invalid origins, by the rule of `serve`.
fn check_origins(origins: &[String]) -> Result<(), Failure> {
    let mut config = Config::default();
    config.listen.listen_websocket = vec!["127.0.0.1:0".to_owned()];
    config.listen.websocket_origin = origins.to_vec();
    config.check().map_err(|error| Failure::bad_input(setting(&error)))
}

/// The error of a port that cannot be used, with its option.
pub(super) fn port_failure(error: &ServerError, listen: &DevListen) -> Option<Failure> {
    let [plain, certificate, token, websocket] = listen.ports();
    let option = |address: &SocketAddr| match address.port() {
        port if port == certificate => "--certificate-port",
        port if port == token => "--token-port",
        port if port == plain => "--plain-port",
        port if port == websocket => "--websocket-port",
        _ => "--ports",
    };
    match error {
        ServerError::Bind(BindError::InUse(address)) => Some(Failure::Unreachable(format!(
            "port {} ({}) is in use, perhaps by another `statestore dev` or a broker; stop it, \
             choose another port, or use --ports any",
            address.port(),
            option(address)
        ))),
        ServerError::Bind(BindError::Address { address, source })
            if source.kind() == io::ErrorKind::PermissionDenied =>
        {
            Some(Failure::bad_input(format_args!(
                "port {} ({}): {source}; use a port from 1024 up",
                address.port(),
                option(address)
            )))
        }
        ServerError::Config(error) => Some(Failure::bad_input(setting(error))),
        _ => None,
    }
}

/// The error of a setting with the option of this command.
fn setting(error: &ConfigError) -> String {
    match (error.key(), error.reason()) {
        (Some(key), Some(reason)) => format!("--{key}: {reason}"),
        _ => error.to_string(),
    }
}
