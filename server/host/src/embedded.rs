//! The embedded broker of a configuration, and the files that can be reloaded.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::Path;
use std::sync::Arc;

use crate::access::shared_policy::SharedPolicy;
use crate::broker::{BindError, Broker};
use crate::config::{self, Config, ConfigError};
use crate::event::{Event, Observer};
use crate::files::LoadError;
use crate::files::permissions::{warn_about_secret, warn_about_writers};
use crate::listen::tls::{RevocationPolicy, ServerTls, TlsFiles};
use crate::listener::{Listener, Protocol};
use crate::login::certificates::{CertificateName, CertificateUsers};
use crate::options::Options;
use crate::reload::{
    CertificateAttributesFile, PolicyFile, Principals, Reloader, ServiceAccountKeysFile, UsersFile,
};
use crate::state::ServerError;

/// An embedded broker that listens.
pub(crate) struct Embedded {
    pub(crate) broker: Arc<Broker>,
    pub(crate) reloader: Reloader,
    pub(crate) policy: Option<SharedPolicy>,
    /// TLS of the configuration, then that of added listeners.
    pub(crate) tls: Vec<ServerTls>,
    /// URL of each listener.
    pub(crate) urls: Vec<String>,
    /// Which clients can connect, and what they may do.
    pub(crate) access: String,
}

/// Opens all files, and listens, also with the added listeners.
pub(crate) async fn start(
    config: &Config,
    added: Vec<Listener>,
    shares_sessions: bool,
    observer: &Observer,
) -> Result<Embedded, ServerError> {
    let Config { login, policy, .. } = config;
    let mut reloader = Reloader::default();
    let mut tls: Vec<ServerTls> = server_tls(config, observer)?.into_iter().collect();
    let mut listeners = listeners(config, tls.first(), !added.is_empty())?;
    for other in added.iter().filter_map(|listener| listener.tls.as_ref()) {
        if !tls.iter().any(|tls| tls.is_same(other)) {
            tls.push(other.clone());
        }
    }
    listeners.extend(added.into_iter().map(|listener| (listener, "listen")));
    let public = listeners.iter().find(|(listener, _)| !listener.address.ip().is_loopback());
    let is_local = public.is_none();
    if let Some((listener, key)) = public
        && policy.policy.is_none()
        && !config.listen.allow_anonymous
    {
        let reason = format!(
            "clients on other machines could connect to {} and do everything: give policy, or \
             allow-anonymous if that is intended",
            listener.address
        );
        return Err(ConfigError::setting(key, reason).into());
    }
    let is_exposed = |(listener, _): &&(Listener, _)| {
        listener.tls.is_none()
            && !listener.address.ip().to_canonical().is_loopback()
            && receives_secrets(login, listener)
    };
    for (Listener { address, .. }, _) in listeners.iter().filter(is_exposed) {
        observer.report(&Event::LoginWithoutTls { address: *address });
    }
    warn_about_files(config, observer);
    let schemes: Vec<&str> = listeners.iter().map(|(listener, _)| scheme(listener)).collect();
    let logins: Vec<bool> =
        listeners.iter().map(|(listener, _)| needs_login(config, listener)).collect();
    let mut listeners = listeners.into_iter().map(|(listener, _)| listener);
    let Some(first) = listeners.next() else {
        return Err(
            ConfigError::setting("listen", "the list is empty: give at least one address").into()
        );
    };
    let mut options = listeners.fold(Options::new(first), Options::listener);
    options = options.limits(limits(&config.broker_limits));
    for tls in tls.iter().filter(|tls| !tls.files().is_empty()) {
        reloader.add(tls.clone());
    }
    if let Some(path) = &login.password_file {
        let users = UsersFile::load(path)?;
        if users.users().current().is_empty() {
            observer.report(&Event::NoUsers { path: path.clone() });
        }
        options = options.users(users.users().clone());
        reloader.add(users);
    }
    if let Some(name) = login.certificate_user {
        let users = CertificateUsers::new(match name {
            config::CertificateUser::Cn => CertificateName::CommonName,
            config::CertificateUser::Dns => CertificateName::Dns,
            config::CertificateUser::Email => CertificateName::Email,
        });
        if let Some(path) = &login.certificate_attributes {
            reloader.add(CertificateAttributesFile::load(path, &users)?);
        }
        options = options.certificate_users(users);
    }
    if let (Some(path), Some(issuer)) = (&login.service_account_keys, &login.service_account_issuer)
    {
        let audiences = login.service_account_audience.iter().cloned();
        let keys = ServiceAccountKeysFile::load(path, issuer, audiences)?;
        options = options.service_accounts(keys.accounts().clone());
        reloader.add(keys);
    }
    let policy = match &policy.policy {
        Some(path) => {
            let file = load_policy(path, principals(&config.login), observer)?;
            let policy = file.policy().clone();
            options = options.policy(policy.clone());
            reloader.add(file);
            Some(policy)
        }
        None => None,
    };
    if login.no_client_id_binding {
        options = options.any_client_id();
    }
    options.shares_sessions = shares_sessions;
    let broker = Broker::bind(options).await?;
    let urls = schemes.iter().zip(broker.local_addrs());
    let urls: Vec<String> = urls.map(|(scheme, address)| format!("{scheme}://{address}")).collect();
    let open = urls.iter().zip(&logins).filter(|(_, needs_login)| !**needs_login);
    let access =
        access(config, is_local, &open.map(|(url, _)| &**url).collect::<Vec<_>>(), urls.len());
    Ok(Embedded { broker: Arc::new(broker), reloader, policy, tls, urls, access })
}

/// Reports files of the embedded broker that other users of this machine can read or change.
fn warn_about_files(config: &Config, observer: &Observer) {
    let Config { tls, login, policy, .. } = config;
    let secrets = [&tls.listen_tls_key, &login.password_file].into_iter().flatten();
    let secrets = secrets.map(|path| (path, warn_about_secret(path)));
    let others = [
        &tls.listen_tls_cert,
        &tls.listen_tls_client_ca,
        &tls.listen_tls_crl,
        &login.certificate_attributes,
        &login.service_account_keys,
        &policy.policy,
    ];
    let others = others.into_iter().flatten().map(|path| (path, warn_about_writers(path)));
    for (path, warning) in secrets.chain(others) {
        if let Some(text) = warning {
            observer.report(&Event::FileWarning { path: path.clone(), text });
        }
    }
}

/// Opens the policy of a store with an external broker.
pub(crate) fn external_files(
    config: &Config,
    observer: &Observer,
) -> Result<(Reloader, Option<SharedPolicy>), LoadError> {
    let mut reloader = Reloader::default();
    let Some(path) = &config.policy.policy else { return Ok((reloader, None)) };
    let file = load_policy(path, Principals::default(), observer)?;
    let policy = file.policy().clone();
    reloader.add(file);
    Ok((reloader, Some(policy)))
}

fn load_policy(
    path: &Path,
    principals: Principals,
    observer: &Observer,
) -> Result<PolicyFile, LoadError> {
    let file = PolicyFile::load(path, principals)?;
    for warning in file.warnings() {
        let text = warning.to_string();
        observer.report(&Event::FileWarning { path: path.to_owned(), text });
    }
    Ok(file)
}

const fn principals(login: &config::Login) -> Principals {
    Principals {
        user_names: login.password_file.is_some()
            || login.certificate_user.is_some()
            || login.service_account_keys.is_some(),
        attributes: login.certificate_attributes.is_some() || login.service_account_keys.is_some(),
    }
}

fn server_tls(config: &Config, observer: &Observer) -> Result<Option<ServerTls>, LoadError> {
    let config::ListenTls {
        listen_tls_cert,
        listen_tls_key,
        listen_tls_client_ca,
        listen_tls_crl,
        listen_tls_require_crl,
    } = &config.tls;
    let (Some(cert), Some(key)) = (listen_tls_cert, listen_tls_key) else { return Ok(None) };
    let mut files = TlsFiles::new(cert, key);
    if let Some(ca) = listen_tls_client_ca {
        files = files.client_ca(ca);
    }
    if let Some(list) = listen_tls_crl {
        files = files.revocation_list(list);
    }
    if *listen_tls_require_crl {
        files = files.revocation_policy(RevocationPolicy::Required);
    }
    let tls = ServerTls::load(files)?;
    for warning in tls.warnings() {
        let text = warning.to_string();
        observer.report(&Event::FileWarning { path: cert.clone(), text });
    }
    Ok(Some(tls))
}

/// Resolves the addresses of all listeners of the configuration, each with its setting. The default
/// listener is used if there is no other one.
fn listeners(
    config: &Config,
    tls: Option<&ServerTls>,
    has_others: bool,
) -> Result<Vec<(Listener, &'static str)>, ServerError> {
    const DEFAULT: &str = "127.0.0.1:1883";
    let config::Listen {
        listen,
        listen_tls,
        listen_websocket,
        listen_websocket_tls,
        websocket_origin,
        ..
    } = &config.listen;
    let is_default = [listen, listen_tls, listen_websocket, listen_websocket_tls]
        .iter()
        .all(|addresses| addresses.is_empty())
        && !has_others;
    let default = [DEFAULT.to_owned()];
    let listen = if is_default { &default } else { &**listen };
    let mut listeners = Vec::new();
    for address in listen {
        listeners.push((Listener::new(resolve("listen", address)?), "listen"));
    }
    for address in listen_websocket {
        let listener = Listener::new(resolve("listen-websocket", address)?);
        listeners.push((listener.websocket(websocket_origin), "listen-websocket"));
    }
    if let Some(tls) = tls {
        for address in listen_tls {
            let listener = Listener::new(resolve("listen-tls", address)?);
            listeners.push((listener.tls(tls.clone()), "listen-tls"));
        }
        for address in listen_websocket_tls {
            let listener = Listener::new(resolve("listen-websocket-tls", address)?);
            let listener = listener.websocket(websocket_origin).tls(tls.clone());
            listeners.push((listener, "listen-websocket-tls"));
        }
    }
    Ok(listeners)
}

/// The scheme of the URL of a listener.
const fn scheme(listener: &Listener) -> &'static str {
    match (&listener.protocol, listener.tls.is_some()) {
        (Protocol::Mqtt, false) => "mqtt",
        (Protocol::Mqtt, true) => "mqtts",
        (Protocol::WebSocket(_), false) => "ws",
        (Protocol::WebSocket(_), true) => "wss",
    }
}

fn resolve(key: &str, address: &str) -> Result<SocketAddr, ServerError> {
    let failed = |source| resolve_error(key, address, source);
    let mut addresses = address.to_socket_addrs().map_err(failed)?;
    addresses.next().ok_or_else(|| failed(io::Error::other("the name has no address")))
}

fn resolve_error(key: &str, address: &str, source: io::Error) -> ServerError {
    match source.kind() {
        io::ErrorKind::InvalidInput => {
            let reason = format!("{address}: {source} (for example 127.0.0.1:1883)");
            ConfigError::setting(key, reason).into()
        }
        _ => BindError::Resolve { address: address.to_owned(), source }.into(),
    }
}

/// Maximum number of connections that wait for their login, and again of those that are closing.
/// Each needs a file descriptor, and memory for its TLS handshake and its CONNECT.
const PENDING_MAX: usize = 1_024;

fn limits(settings: &config::BrokerLimits) -> crate::Limits {
    let number = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let mut limits = crate::Limits::default();
    limits.connections = number(settings.max_connections);
    // All clients of a site may connect at once, for example after a restart of the server.
    limits.pending_connections = limits.connections.clamp(limits.pending_connections, PENDING_MAX);
    limits.connections_per_address = number(settings.max_address_connections);
    limits.sessions = number(settings.max_sessions);
    limits.subscriptions = number(settings.max_subscriptions);
    limits.memory = bytes(settings.max_broker_memory);
    limits.session_memory = bytes(settings.max_client_memory);
    limits.retained_memory = bytes(settings.max_retained_memory);
    limits.messages_per_second = settings.rate_limit;
    limits
}

/// Returns whether clients of a listener send passwords or tokens.
fn receives_secrets(login: &config::Login, listener: &Listener) -> bool {
    match &listener.login {
        Some(login) => login.service_accounts.is_some(),
        None => login.password_file.is_some() || login.service_account_keys.is_some(),
    }
}

/// Returns whether clients of a listener need a login.
fn needs_login(config: &Config, listener: &Listener) -> bool {
    let Config { login, tls, .. } = config;
    match &listener.login {
        Some(login) => !login.is_empty(),
        None => {
            login.password_file.is_some()
                || login.certificate_user.is_some()
                || login.service_account_keys.is_some()
                || (listener.tls.is_some() && tls.listen_tls_client_ca.is_some())
        }
    }
}

/// Which clients can connect, and what they may do. `open` are the URLs that need no login, of this
/// many.
fn access(config: &Config, is_local: bool, open: &[&str], urls: usize) -> String {
    let who = match (is_local, open.len() == urls) {
        (true, true) => "only this machine can connect",
        (true, false) => "only this machine can connect, after a login",
        (false, false) => "other machines can connect, after a login",
        (false, true) => "every machine that reaches these addresses can connect",
    };
    let except = match open.len() {
        0 => String::new(),
        count if count == urls => String::new(),
        _ => format!(" except on {}", open.join(" and ")),
    };
    let what = if config.policy.policy.is_some() { "what the policy allows" } else { "everything" };
    format!("{who}{except}; clients may do {what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        Config::from_toml(text).unwrap()
    }

    #[test]
    fn access_names_who_can_connect() {
        for (text, is_local, part) in [
            ("", true, "only this machine can connect; clients may do everything"),
            ("", false, "every machine"),
            (
                "[login]\npassword-file = \"p\"\n",
                false,
                "other machines can connect, after a login",
            ),
            ("[policy]\npolicy = \"p\"\n", true, "what the policy allows"),
        ] {
            let config = config(text);
            let listeners = listeners(&config, None, false).unwrap();
            let is_open = |(listener, _): &&(Listener, _)| !needs_login(&config, listener);
            let open = vec!["mqtt://a"; listeners.iter().filter(is_open).count()];
            let access = access(&config, is_local, &open, listeners.len());
            assert!(access.contains(part), "{access}");
        }
        let mixed = access(&Config::default(), true, &["mqtt://a"], 2);
        assert!(mixed.contains("after a login except on mqtt://a; "), "{mixed}");
        let with_authority = config("[tls]\nlisten-tls-client-ca = \"ca.pem\"\n");
        let plain = Listener::new(([127, 0, 0, 1], 0));
        assert!(!needs_login(&with_authority, &plain), "only TLS requires a certificate");
    }

    #[test]
    fn default_listener_is_used_only_without_another() {
        let addresses = |text: &str| -> Vec<String> {
            let listeners = listeners(&config(text), None, false).unwrap();
            listeners
                .iter()
                .map(|(listener, _)| format!("{}://{}", scheme(listener), listener.address))
                .collect()
        };
        assert_eq!(addresses(""), ["mqtt://127.0.0.1:1883"]);
        assert_eq!(
            addresses("[listen]\nlisten-websocket = [\"127.0.0.1:9001\"]\n"),
            ["ws://127.0.0.1:9001"]
        );
        assert_eq!(
            addresses("[listen]\nlisten = [\"127.0.0.1:1\", \"[::1]:2\"]\n"),
            ["mqtt://127.0.0.1:1", "mqtt://[::1]:2"]
        );
    }

    #[test]
    fn address_has_a_host_and_a_port() {
        assert_eq!(resolve("listen", "127.0.0.1:0").unwrap(), ([127, 0, 0, 1], 0).into());
        assert!(resolve("listen", "[::1]:1883").unwrap().is_ipv6());
        for address in ["127.0.0.1", "1883", "127.0.0.1:x", "127.0.0.1:99999"] {
            let error = resolve("listen", address).unwrap_err();
            let is_invalid =
                matches!(&error, ServerError::Config(it) if it.key() == Some("listen"));
            assert!(is_invalid && !error.is_address_unavailable(), "{address}: {error}");
        }
    }

    /// So that a supervisor tries again.
    #[test]
    fn name_that_does_not_resolve_is_unavailable_rather_than_invalid() {
        for source in [io::Error::other("unknown name"), io::Error::from_raw_os_error(2)] {
            let error = resolve_error("listen", "nowhere:1883", source);
            assert!(error.is_address_unavailable(), "{error}");
        }
    }
}
