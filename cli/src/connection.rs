//! From the options of a connection to a link.

use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use statestore_rumqttc::{
    Backoff, Options, RumqttcLink, StateStore, Status, StatusWatch, Tls, Trouble, tls_config,
};

use crate::args::{Common, Connection, Login};
use crate::failure::Failure;
use crate::output::say;
use crate::policy::client_prefix;

/// Where a broker is.
#[derive(Debug, PartialEq, Eq)]
struct Address<'a> {
    host: &'a str,
    port: u16,
    tls: bool,
}

/// What rumqttc needs for this connection, with a client id of its own unless one is given.
pub(crate) fn options(broker: &str, login: &Login, default_id: &str) -> Result<Options, Failure> {
    let Address { host, port, tls } = address(broker)?;
    let client_id = login.client_id.clone().unwrap_or_else(|| default_id.to_owned());
    if client_id.is_empty() {
        return Err(Failure::bad_input(
            "--client-id: a client id is not empty; leave it out for a new one",
        ));
    }
    // The environment may have these for a store beside a broker, which is not asked for here.
    if login.password.is_some() && login.user.is_none() {
        return Err(Failure::bad_input("--password: whose? Say so with --user NAME"));
    }
    if login.cert.is_some() != login.key_file.is_some() {
        return Err(Failure::bad_input("--cert and --key-file belong together: give both"));
    }
    if let Some(path) = &login.service_account_token_file {
        token(path)?;
    }
    let mut options = Options::new(client_id, host, port);
    if let Some(user) = &login.user {
        options = options.credentials(user, login.password.as_deref().unwrap_or_default());
    }
    if tls {
        let mut tls = Tls::default();
        if let Some(ca) = &login.ca {
            tls = tls.ca_file(ca);
        }
        if let (Some(cert), Some(key)) = (&login.cert, &login.key_file) {
            tls = tls.identity(cert, key);
        }
        // A file that is of no use is bad input rather than a broker that cannot be reached.
        tls_config(&tls).map_err(Failure::bad_input)?;
        options = options.tls(tls);
    } else if login.ca.is_some() || login.cert.is_some() {
        return Err(Failure::bad_input(
            "--ca and --cert are for TLS: write the broker as mqtts://HOST:PORT",
        ));
    }
    Ok(options)
}

/// The same link, which logs in as a service account if it is to.
pub(crate) fn as_account(link: RumqttcLink, login: &Login) -> RumqttcLink {
    let Some(path) = login.service_account_token_file.clone() else { return link };
    link.mqtt_options(move |mqtt| {
        // Who has mounted it there writes a new one before it expires. Without any the broker says that it takes none.
        let token = token(&path).unwrap_or_default();
        mqtt.set_authentication_method(Some("K8S-SAT".into()));
        mqtt.set_authentication_data(Some(token.into()));
    })
}

/// The token in a file, of 60 KiB at most: more than brokers take.
fn token(path: &Path) -> Result<Vec<u8>, Failure> {
    const TOKEN_MAX: usize = 60 << 10;
    let bad = |error: &dyn std::fmt::Display| {
        Failure::bad_input(format_args!("--service-account-token-file {}: {error}", path.display()))
    };
    let mut token = Vec::new();
    let file = std::fs::File::open(path).map_err(|error| bad(&error))?;
    let limit = u64::try_from(TOKEN_MAX).unwrap_or(u64::MAX) + 1;
    file.take(limit).read_to_end(&mut token).map_err(|error| bad(&error))?;
    let token = token.trim_ascii();
    match token.len() {
        0 => Err(bad(&"there is no token in it")),
        len if len > TOKEN_MAX => Err(bad(&"this is too long to be a token")),
        _ => Ok(token.to_vec()),
    }
}

/// A handle on the store beside this broker.
pub(crate) fn store(common: &Common) -> Result<StateStore, Failure> {
    let Connection { broker, login } = &common.connection;
    let options = options(broker, login, &client_id(login, "cli"))?;
    let pauses = Backoff { first: Duration::from_millis(50), longest: Duration::from_secs(1) };
    let link = as_account(RumqttcLink::for_client(options), login).fail_fast(advice);
    let builder = StateStore::builder().timeout(common.timeout).backoff(pauses);
    let store = builder
        .spawn(link)
        .map_err(|error| Failure::bad_input(format_args!("--client-id: {error}")))?;
    tokio::spawn(say_if_slow(store.status(), broker.clone()));
    Ok(store)
}

/// What is the matter with a connection, and which option mends it.
pub(crate) fn advice(trouble: &Trouble) -> String {
    let remedy = match trouble {
        Trouble::IsPlain => "write the --broker as mqtt://, or find the port that speaks TLS",
        Trouble::IsTls => "write the --broker as mqtts://",
        Trouble::UnknownAuthority => "name the certificate of its authority with --ca",
        Trouble::OtherName(_) => "write the --broker with the name in its certificate",
        Trouble::NotValidNow(_) => "it needs a new one, unless the clock of this machine is wrong",
        Trouble::CertificateWanted => "give one with --cert and --key-file",
        Trouble::CertificateRefused(_) => "give another one with --cert and --key-file",
        _ => "check --broker, --ca, --cert and --key-file",
    };
    format!("{trouble}; {remedy}")
}

/// Says once what it waits for, when there is no connection after a while.
pub(crate) async fn say_if_slow(mut status: StatusWatch, broker: String) {
    tokio::time::sleep(Duration::from_secs(1)).await;
    if let Status::Offline { reason } = status.current() {
        let reason = reason.as_deref().unwrap_or("no answer");
        say(format_args!("not connected to {broker} yet ({reason}); still trying"));
    }
}

/// A client id that no other run has. A user's begins with the name, as brokers that bind client ids to users want it.
pub(crate) fn client_id(login: &Login, role: &str) -> String {
    match &login.user {
        Some(user) => format!("{}{}", client_prefix(user), unique_id(role)),
        None => unique_id(role),
    }
}

/// A name that no other run has.
pub(crate) fn unique_id(role: &str) -> String {
    format!("statestore-{role}-{:08x}", fastrand::u32(..))
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path)
        .map_err(|error| Failure::bad_input(format_args!("{}: {error}", path.display())))
}

fn address(url: &str) -> Result<Address<'_>, Failure> {
    let bad = || match url.contains('@') {
        true => Failure::bad_input(
            "--broker: a URL holds no user and no password: give --user and STATESTORE_PASSWORD",
        ),
        false => Failure::bad_input(format_args!(
            "{url}: write the broker as mqtt://HOST:PORT or mqtts://HOST:PORT"
        )),
    };
    let (tls, rest) = match url.split_once("://") {
        Some(("mqtt", rest)) => (false, rest),
        Some(("mqtts", rest)) => (true, rest),
        _ => return Err(bad()),
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().map_err(|_| bad())?),
        _ => (rest, if tls { 8883 } else { 1883 }),
    };
    if host.is_empty() || host.contains(['/', '@']) || port == 0 {
        return Err(bad());
    }
    Ok(Address { host, port, tls })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brokers_are_named_by_scheme_host_and_port() {
        for (url, host, port, tls) in [
            ("mqtt://127.0.0.1:1883", "127.0.0.1", 1883, false),
            ("mqtt://broker.example", "broker.example", 1883, false),
            ("mqtts://broker.example/", "broker.example", 8883, true),
            ("mqtt://[::1]:1884", "[::1]", 1884, false),
            ("mqtt://[::1]", "[::1]", 1883, false),
        ] {
            assert_eq!(address(url).unwrap(), Address { host, port, tls }, "{url}");
        }
        for url in [
            "127.0.0.1:1883",
            "http://h",
            "mqtt://",
            "mqtt://h:0",
            "mqtt://h:x",
            "mqtt://u@h",
            "mqtt://h/x",
        ] {
            assert!(matches!(address(url), Err(Failure::Refused(_))), "{url}");
        }
        let secret = address("mqtt://alice:secret@h").unwrap_err().to_string();
        assert!(!secret.contains("secret") && secret.contains("--user"), "{secret}");
    }

    #[test]
    fn every_run_has_a_client_id_of_its_own() {
        assert_ne!(unique_id("cli"), unique_id("cli"));
    }
}
